#include "run/stored/stored_checkpoint.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "base/hash.h"
#include "base/printable.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::stored {
namespace {

constexpr std::string_view kStepPrefix = "step-";
constexpr int kMostFiles = 100'000, kMostCells = 10'000, kMostDataFiles = 100'000;
constexpr uint64_t kMostFileBytes = uint64_t{1} << 50;
constexpr uint64_t kMostPieces = 10'000;
constexpr uint64_t kMostSteps = uint64_t{1} << 40, kMostMicrobatches = uint64_t{1} << 56;
constexpr uint32_t kMostLayers = 1 << 20;
constexpr size_t kMostRunFileBytes = 4 << 20;
constexpr size_t kLongestName = 200, kLongestRun = 100;

// Letters, digits, '-', '_' and '.', and no '.' in front: such a name leads out of no folder, and
// is written as it is in every address.
bool IsPlainName(std::string_view name, size_t longest) {
  return !name.empty() && name.size() <= longest && name.front() != '.' &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

Status CheckFile(const v1::CheckpointFile& file, uint64_t piece_bytes) {
  if (!IsPlainName(file.name(), kLongestName) || !file.name().ends_with(".safetensors")) {
    return DataLoss("expected names of files such as stage-0.params.safetensors, got '{}'",
                    Printable(file.name(), kLongestName));
  }
  if (file.bytes() == 0 || file.bytes() > kMostFileBytes ||
      file.bytes() / piece_bytes > kMostPieces) {
    return DataLoss("{}: it cannot have {} bytes in pieces of {}", file.name(), file.bytes(),
                    piece_bytes);
  }
  if (!IsSha256Hex(file.sha256())) {
    return DataLoss("{}: expected a SHA-256 of 64 hexadecimal digits, got '{}'", file.name(),
                    Printable(file.sha256(), 80));
  }
  return absl::OkStatus();
}

// The cells of each replica must hold all layers, one stage after the other.
Status CheckCells(const v1::CheckpointManifest& manifest) {
  if (manifest.cells_size() < 1 || manifest.cells_size() > kMostCells) {
    return DataLoss("expected the split that wrote it, of 1 to {} cells, got {}", kMostCells,
                    manifest.cells_size());
  }
  std::map<uint32_t, std::map<uint32_t, const v1::Cell*>> replicas;
  for (const v1::Cell& cell : manifest.cells()) {
    replicas[cell.id().replica()][cell.id().stage()] = &cell;
  }
  size_t cells = 0;
  for (const auto& [replica, stages] : replicas) {
    uint32_t next = 0, next_stage = 0;
    for (const auto& [stage, cell] : stages) {
      if (stage != next_stage++) return DataLoss("expected a split without gaps between stages");
      if (cell->first_layer() != next || cell->layers() < 1 || cell->layers() > kMostLayers ||
          next > kMostLayers) {
        return DataLoss(
            "expected a split whose stages hold one layer after the other, got layers "
            "{} to {} in stage {}",
            cell->first_layer(), uint64_t{cell->first_layer()} + cell->layers(), stage);
      }
      next += cell->layers();
    }
    cells += stages.size();
    if (stages.size() != replicas.begin()->second.size()) {
      return DataLoss("expected as many stages in each replica of the split");
    }
  }
  const bool has_gaps = replicas.rbegin()->first >= replicas.size();
  if (cells != static_cast<size_t>(manifest.cells_size()) || has_gaps) {
    return DataLoss("expected a split with each cell once");
  }
  return absl::OkStatus();
}

}  // namespace

std::string FolderOfRun(std::string_view to, std::string_view run) {
  while (to.ends_with('/')) to.remove_suffix(1);
  return fmt::format("{}/{}/", to, run);
}

std::string FolderOfStep(std::string_view folder_of_run, uint64_t step) {
  return fmt::format("{}{}{:08}/", folder_of_run, kStepPrefix, step);
}

std::optional<uint64_t> StepOf(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  name.remove_prefix(kStepPrefix.size());
  uint64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return step;
}

std::vector<Piece> PiecesOf(const v1::CheckpointFile& file, uint64_t piece_bytes) {
  if (file.bytes() <= piece_bytes) return {{file.name(), 0, file.bytes()}};
  std::vector<Piece> pieces;
  for (uint64_t offset = 0; offset < file.bytes(); offset += piece_bytes) {
    pieces.push_back({fmt::format("{}.part-{:05}", file.name(), pieces.size()), offset,
                      std::min(piece_bytes, file.bytes() - offset)});
  }
  return pieces;
}

bool IsObjectOf(std::string_view address, const v1::CheckpointFile& file,
                const v1::StoredFolder& folder) {
  if (!address.starts_with(folder.address())) return false;
  address.remove_prefix(folder.address().size());
  if (!address.starts_with(file.name())) return false;
  return std::ranges::any_of(PiecesOf(file, folder.piece_bytes()),
                             [&](const Piece& piece) { return piece.name == address; });
}

std::string ToJson(const v1::StoredCheckpoint& checkpoint) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  // It cannot fail: the message has neither Any nor a Duration in it.
  (void)google::protobuf::util::MessageToJsonString(checkpoint, &json, options);
  return json;
}

StatusOr<v1::StoredCheckpoint> FromJson(std::string_view json) {
  if (json.size() > kMostDescriptionBytes) {
    return DataLoss("expected at most {} bytes, got {}", kMostDescriptionBytes, json.size());
  }
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // of newer versions
  v1::StoredCheckpoint checkpoint;
  const auto parsed = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(json.data(), json.size()), &checkpoint, options);
  if (!parsed.ok()) {
    return DataLoss("expected the description of a checkpoint as JSON: {}",
                    Printable(std::string(parsed.message()), 200));
  }
  LH_RETURN_IF_ERROR(Check(checkpoint));
  return checkpoint;
}

Status Check(const v1::StoredCheckpoint& checkpoint) {
  const v1::CheckpointManifest& manifest = checkpoint.manifest();
  if (checkpoint.format() > kFormat || manifest.format() > kManifestFormat) {
    return FailedPrecondition(
        "it is of a newer version (format {}, manifest {}; this one reads {} and {}); install "
        "version {}",
        checkpoint.format(), manifest.format(), kFormat, kManifestFormat,
        Printable(checkpoint.version(), 40));
  }
  if (checkpoint.format() != kFormat || manifest.format() != kManifestFormat) {
    return DataLoss("expected format {} and manifest {}, got {} and {}", kFormat, kManifestFormat,
                    checkpoint.format(), manifest.format());
  }
  if (!IsPlainName(manifest.run_id(), kLongestRun)) {
    return DataLoss("'{}' cannot be the id of a run", Printable(manifest.run_id(), kLongestRun));
  }
  if (manifest.step() < 1 || manifest.step() > kMostSteps || manifest.interim() ||
      manifest.microbatches() > kMostMicrobatches) {
    return DataLoss(
        "expected a checkpoint of a step from 1 on, got step {} after {} microbatches{}",
        manifest.step(), manifest.microbatches(), manifest.interim() ? ", for recovery alone" : "");
  }
  if (checkpoint.piece_bytes() < 1) return DataLoss("expected piece_bytes above 0");
  LH_RETURN_IF_ERROR(CheckCells(manifest));
  if (manifest.files_size() < 1 || manifest.files_size() > kMostFiles) {
    return DataLoss("expected 1 to {} files, got {}", kMostFiles, manifest.files_size());
  }
  std::set<std::string_view> names;
  for (const v1::CheckpointFile& file : manifest.files()) {
    LH_RETURN_IF_ERROR(CheckFile(file, checkpoint.piece_bytes()));
    if (!names.insert(file.name()).second) return DataLoss("{} is there twice", file.name());
    const bool has_writer = std::ranges::any_of(
        manifest.cells(), [&](const v1::Cell& cell) { return cell.id().stage() == file.stage(); });
    if (!has_writer) return DataLoss("{}: the split has no stage {}", file.name(), file.stage());
    if (!file.run_id().empty() && !IsPlainName(file.run_id(), kLongestRun)) {
      return DataLoss("{}: '{}' cannot be the id of a run", file.name(),
                      Printable(file.run_id(), kLongestRun));
    }
  }
  if (checkpoint.run_yaml().empty() || checkpoint.run_yaml().size() > kMostRunFileBytes ||
      checkpoint.data_files_size() > kMostDataFiles) {
    return DataLoss("expected a run file of 1 to {} bytes and at most {} data files, got {} and {}",
                    kMostRunFileBytes, kMostDataFiles, checkpoint.run_yaml().size(),
                    checkpoint.data_files_size());
  }
  for (const v1::DataFile& file : checkpoint.data_files()) {
    if (IsSha256Hex(file.sha256())) continue;
    return DataLoss("{}: expected a SHA-256 of 64 hexadecimal digits, got '{}'",
                    Printable(file.name(), kLongestName), Printable(file.sha256(), 80));
  }
  return absl::OkStatus();
}

}  // namespace longhaul::stored
