#include "worker/stage/snapshot/snapshot_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "worker/stage/optimizer/optimizer.h"

namespace longhaul::worker {
namespace {

struct Name {
  std::string whole;
  uint64_t first = 0;
  bool is_piece = false;
};

Name Parse(const std::string& name) {
  const size_t at = name.rfind('@');
  if (at == std::string::npos) return {.whole = name};
  Name parsed{.is_piece = true};
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + at + 1, end, parsed.first);
  if (error != std::errc()) return {.whole = name};
  parsed.whole = name.substr(0, at) + std::string(rest, end);
  return parsed;
}

}  // namespace

std::string PieceName(const std::string& parameter, uint64_t first, std::string_view suffix) {
  return fmt::format("{}@{}{}", parameter, first, suffix);
}

std::pair<std::string, uint64_t> WholeName(const std::string& name) {
  const Name parsed = Parse(name);
  return {parsed.whole, parsed.first};
}

ArrayPieces::ArrayPieces(std::span<const NamedArray> arrays) {
  for (const NamedArray& array : arrays) {
    const Name name = Parse(array.name);
    by_name_[name.whole].push_back({name.first, &array});
    has_pieces_ |= name.is_piece;
  }
  for (auto& [name, pieces] : by_name_) std::ranges::sort(pieces, {}, &Piece::first);
}

Status ArrayPieces::Read(const std::string& name, uint64_t first, std::span<float> out) const {
  const auto found = by_name_.find(name);
  uint64_t next = first;
  const uint64_t end = first + out.size();
  if (found != by_name_.end()) {
    for (const Piece& piece : found->second) {
      const uint64_t piece_end = piece.first + piece.array->values.size();
      if (piece.first > next || piece_end <= next) continue;
      const uint64_t count = std::min(end, piece_end) - next;
      std::copy_n(piece.array->values.begin() + static_cast<long>(next - piece.first), count,
                  out.begin() + static_cast<long>(next - first));
      next += count;
      if (next == end) return absl::OkStatus();
    }
  }
  if (out.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      found == by_name_.end()
          ? fmt::format("the checkpoint has no {}; it is of another model or optimizer", name)
          : fmt::format("the checkpoint has {} but for its elements from {} on; files of a replica "
                        "are missing",
                        name, next));
}

StatusOr<StageSnapshot> WithoutPieces(const StageSnapshot& snapshot) {
  const ArrayPieces pieces(snapshot.moments);
  if (!pieces.HasPieces()) return snapshot;
  StageSnapshot whole{.step = snapshot.step,
                      .parameters = snapshot.parameters,
                      .moments = {},
                      .tables = snapshot.tables};
  for (NamedArray& parameter : whole.parameters) {
    if (pieces.Has(parameter.name + std::string(kMaster))) {
      LH_RETURN_IF_ERROR(pieces.Read(parameter.name + std::string(kMaster), 0, parameter.values));
    }
    for (const std::string_view suffix : {kExpAvg, kExpAvgSq, kMomentum}) {
      const std::string name = parameter.name + std::string(suffix);
      if (!pieces.Has(name)) continue;
      NamedArray& moment = whole.moments.emplace_back(
          NamedArray{name, parameter.shape, std::vector<float>(parameter.values.size())});
      LH_RETURN_IF_ERROR(pieces.Read(name, 0, moment.values));
    }
  }
  return whole;
}

}  // namespace longhaul::worker
