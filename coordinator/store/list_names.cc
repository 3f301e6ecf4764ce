#include "coordinator/store/list_names.h"

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/hash.h"
#include "base/remote/address.h"
#include "base/units.h"
#include "coordinator/store/json_stream.h"
#include "run/data/data_set.h"
#include "run/published/weights.h"

namespace longhaul::coordinator {
namespace {

constexpr std::string_view kMixtureList = "longhaul mixture", kWeightsList = "longhaul weights";
constexpr size_t kMostNameBytes = 64 << 10;  // of a file, folder or tensor
constexpr size_t kDigitsOfName = 2 * ListNames::kNameBytes;

Status NoList() {
  return absl::InvalidArgumentError("expected a list of data sets or of a model's weights");
}

// A name that is none names nothing.
void AddAddress(const std::string& folder, std::string_view file, std::set<std::string>* objects) {
  const StatusOr<remote::Address> at = remote::ParseAddress(folder);
  if (!at.ok()) return;
  const StatusOr<remote::Address> object = remote::Inside(*at, file);
  if (object.ok()) objects->insert(remote::ToString(*object));
}

// Follows where in the list a value is, and keeps what names something.
class ListParts : public JsonParts {
 public:
  Status OnBegin(bool /*array*/) override {
    LH_RETURN_IF_ERROR(Count(1));
    path_.emplace_back();
    return absl::OkStatus();
  }

  Status OnEnd() override {
    path_.pop_back();
    if (IsAt({"sources", ""})) EndSource();
    if (IsAt({"tensors", ""})) return EndTensor();
    return absl::OkStatus();
  }

  Status OnKey(std::string_view key) override {
    path_.back() = key;
    return Count(key.size());
  }

  Status OnScalar() override { return Count(1); }

  Status OnText(std::string_view part, bool last) override {
    // The tokenizer's files have a limit of their own, and name nothing.
    if (path_.size() == 2 && path_.front() == "files") return CountFile(part.size());
    LH_RETURN_IF_ERROR(Count(part.size() + 1));
    if (IsHashes()) return TakeDigits(part, last);
    if (!IsName()) return absl::OkStatus();
    text_ += part;
    if (text_.size() > kMostNameBytes) {
      return InvalidArgument("a name in it has more than {}", FormatBytes(kMostNameBytes));
    }
    if (last) LH_RETURN_IF_ERROR(TakeName(std::exchange(text_, "")));
    return absl::OkStatus();
  }

  StatusOr<ListNames> Names() {
    ListNames names;
    if (format_ == kMixtureList) {
      names = std::move(mixture_);
    } else if (format_ == kWeightsList) {
      names.blobs = std::move(adapters_);
      if (from_.empty()) names.blobs += tensors_;
      if (!from_.empty()) names.folders.push_back(from_);
      for (const std::string& version : versions_) AddAddress(from_, version, &names.objects);
    } else {
      return NoList();
    }
    return names;
  }

 private:
  // Elements of arrays have the key "".
  bool IsAt(std::initializer_list<std::string_view> path) const {
    return std::ranges::equal(path_, path);
  }
  // In a shard of a source, with this many keys behind it.
  bool IsInShard(size_t keys) const {
    return path_.size() == 4 + keys && path_[0] == "sources" &&
           (path_[2] == "training" || path_[2] == "validation");
  }
  bool IsInFileOfShard(std::string_view key) const {
    return (IsInShard(1) && path_[4] == key) ||
           (IsInShard(2) && path_[4] == "mask" && path_[5] == key);
  }
  bool IsHashes() const { return IsInFileOfShard("chunks"); }
  bool IsName() const {
    return IsInFileOfShard("file") || IsAt({"format"}) || IsAt({"from"}) ||
           IsAt({"sources", "", "folder"}) || IsAt({"tensors", "", "name"}) ||
           IsAt({"tensors", "", "sha256"}) || IsAt({"versions", "", "name"});
  }

  Status Count(size_t bytes) {
    bytes_ += bytes;
    if (bytes_ <= kMostListBytes) return absl::OkStatus();
    return InvalidArgument("its names have more than {}", FormatBytes(kMostListBytes));
  }
  Status CountFile(size_t bytes) {
    file_bytes_ += bytes;
    if (file_bytes_ <= kMostListFileBytes) return absl::OkStatus();
    return InvalidArgument("the files of its tokenizer have more than {}",
                           FormatBytes(kMostListFileBytes));
  }

  // Hashes in hexadecimal digits, one after the other.
  Status TakeDigits(std::string_view part, bool last) {
    digits_ += part;
    size_t used = 0;
    for (; used + kDigitsOfName <= digits_.size(); used += kDigitsOfName) {
      const std::string_view hash = std::string_view(digits_).substr(used, kDigitsOfName);
      if (!IsSha256Hex(hash))
        return absl::InvalidArgumentError("the hash of a chunk in it is none");
      source_blobs_ += absl::HexStringToBytes(std::string(hash));
    }
    digits_.erase(0, used);
    if (last && !std::exchange(digits_, "").empty()) {
      return absl::InvalidArgumentError("the hashes of its chunks are cut off");
    }
    return absl::OkStatus();
  }

  Status TakeName(std::string text) {
    if (IsAt({"format"})) {
      format_ = std::move(text);
    } else if (IsAt({"from"})) {
      from_ = std::move(text);
    } else if (IsAt({"sources", "", "folder"})) {
      folder_ = std::move(text);
    } else if (IsAt({"tensors", "", "name"})) {
      tensor_name_ = std::move(text);
    } else if (IsAt({"tensors", "", "sha256"})) {
      tensor_sha256_ = std::move(text);
    } else if (IsAt({"versions", "", "name"})) {
      versions_.push_back(std::move(text));
    } else {
      LH_RETURN_IF_ERROR(data::CheckInside(text));
      source_files_.push_back(std::move(text));
    }
    return absl::OkStatus();
  }

  void EndSource() {
    const bool at_address = !folder_.starts_with('/') && folder_.find("://") != std::string::npos;
    if (at_address) {
      for (const std::string& file : source_files_) AddAddress(folder_, file, &mixture_.objects);
    } else {
      mixture_.blobs += source_blobs_;
    }
    source_blobs_.clear();
    source_files_.clear();
    mixture_.folders.push_back(std::exchange(folder_, ""));
  }

  Status EndTensor() {
    const std::string sha256 = std::exchange(tensor_sha256_, "");
    const published::Tensor tensor{.name = std::exchange(tensor_name_, "")};
    if (sha256.empty()) return absl::OkStatus();
    if (!IsSha256Hex(sha256)) {
      return absl::InvalidArgumentError("the hash of a tensor in it is none");
    }
    (published::IsOfAdapter(tensor) ? adapters_ : tensors_) += absl::HexStringToBytes(sha256);
    return absl::OkStatus();
  }

  std::vector<std::string> path_;  // the keys of what is open
  uint64_t bytes_ = 0, file_bytes_ = 0;
  std::string text_, digits_;
  std::string format_, from_;
  // Data sets: all names, and those of the source that is being read.
  ListNames mixture_;
  std::string folder_, source_blobs_;
  std::vector<std::string> source_files_;
  // A model. Adapters are blobs also where the model is at an address.
  std::string tensor_name_, tensor_sha256_, tensors_, adapters_;
  std::vector<std::string> versions_;
};

}  // namespace

StatusOr<ListNames> ReadListNames(std::istream& json) {
  ListParts parts;
  LH_RETURN_IF_ERROR(ReadJson(json, {.values = kMostListValues}, &parts));
  return parts.Names();
}

}  // namespace longhaul::coordinator
