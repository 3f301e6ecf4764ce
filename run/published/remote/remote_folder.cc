#include "run/published/remote/remote_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/printable.h"

namespace longhaul::published {
namespace {

class RemoteFolder final : public ModelFolder {
 public:
  // `names`: the files of the folder, if the server has a list.
  RemoteFolder(const remote::Store& store, remote::Address folder, http::Call call,
               std::set<std::string> names)
      : store_(store),
        folder_(std::move(folder)),
        call_(std::move(call)),
        names_(std::move(names)) {}

  std::string Shown() const override { return remote::ShownAddress(folder_); }
  std::string Shown(const std::string& file) const override {
    const auto address = remote::Inside(folder_, file);
    return address.ok() ? remote::ShownAddress(*address) : Shown();
  }
  std::string Address() const override { return remote::ToString(folder_); }

  StatusOr<bool> Has(const std::string& file) override {
    if (folder_.IsOnHub()) return names_.contains(file);
    LH_ASSIGN_OR_RETURN(const remote::Address address, remote::Inside(folder_, file));
    const Status looked = store_.Look(address, call_).status();
    // A reader who may not list a bucket gets 403 for an object that is not there.
    if (absl::IsNotFound(looked) || (absl::IsPermissionDenied(looked) && may_read_)) return false;
    LH_RETURN_IF_ERROR(looked);
    return true;
  }

  StatusOr<std::string> ReadWhole(const std::string& file, uint64_t limit) override {
    LH_ASSIGN_OR_RETURN(const remote::Address address, remote::Inside(folder_, file));
    StatusOr<std::string> text = store_.ReadAll(address, limit, call_);
    if (text.ok()) may_read_ = true;
    return text;
  }

  StatusOr<FileVersion> Look(const std::string& file) override {
    LH_ASSIGN_OR_RETURN(const remote::Address address, remote::Inside(folder_, file));
    LH_ASSIGN_OR_RETURN(remote::Version version, store_.Look(address, call_));
    if (version.tag.empty()) {
      return FailedPrecondition(
          "{}: the server names neither an ETag nor a time, so nobody would notice if the file "
          "changed during a run; use another server, or a folder",
          Shown(file));
    }
    return FileVersion{.name = file, .bytes = version.bytes, .tag = std::move(version.tag)};
  }

  StatusOr<std::vector<std::byte>> ReadStart(const FileVersion& file, uint64_t count) override {
    LH_ASSIGN_OR_RETURN(const remote::Address address, remote::Inside(folder_, file.name));
    std::vector<std::byte> start(count);
    if (count == 0) return start;
    LH_RETURN_IF_ERROR(
        store_.ReadInto(address, {.bytes = file.bytes, .tag = file.tag}, 0, start, call_));
    return start;
  }

 private:
  const remote::Store& store_;
  const remote::Address folder_;
  const http::Call call_;
  const std::set<std::string> names_;
  bool may_read_ = false;  // some file could be read
};

Status Changed(const remote::Address& file, std::string_view how) {
  return DataLoss(
      "{} has changed since the run was submitted ({}); submit the run again to begin with the "
      "new file",
      remote::ShownAddress(file), how);
}

std::string Described(const remote::Version& version) {
  return fmt::format("{} bytes with the tag {}", version.bytes, Printable(version.tag, 100));
}

}  // namespace

StatusOr<std::unique_ptr<ModelFolder>> OpenRemoteFolder(const remote::Store& store,
                                                        remote::Address address,
                                                        const http::Call& call) {
  if (address.kind == remote::Kind::kWeb && address.path.find('?') != std::string::npos) {
    return InvalidArgument(
        "{}: expected a folder's address without a query; signed addresses are secrets, which do "
        "not belong into the records of a run",
        remote::ShownAddress(address));
  }
  if (!address.IsFolder()) address.path += '/';
  std::set<std::string> names;
  if (address.IsOnHub()) {
    LH_ASSIGN_OR_RETURN(remote::Listing listing, store.List(address, call));
    address = std::move(listing.at);
    for (remote::Entry& entry : listing.entries) names.insert(std::move(entry.path));
  }
  return std::make_unique<RemoteFolder>(store, std::move(address), call, std::move(names));
}

StatusOr<RemoteTensors> RemoteTensors::Open(const remote::Store& store, const Weights& weights) {
  LH_ASSIGN_OR_RETURN(remote::Address folder, remote::ParseAddress(weights.from));
  return RemoteTensors(store, std::move(folder), weights.versions);
}

StatusOr<std::vector<std::byte>> RemoteTensors::Read(const Tensor& tensor, const http::Call& call) {
  LH_ASSIGN_OR_RETURN(const remote::Address file, remote::Inside(folder_, tensor.file));
  const auto known = std::ranges::find(versions_, tensor.file, &FileVersion::name);
  if (known == versions_.end()) {
    return DataLoss("the list of weights has no file {} for '{}'", tensor.file, tensor.name);
  }
  const remote::Version version{.bytes = known->bytes, .tag = known->tag};
  // Before there is memory for what a foreign list promises.
  if (!unchanged_.contains(tensor.file)) {
    LH_ASSIGN_OR_RETURN(const remote::Version now, store_->Look(file, call));
    if (now != version) {
      return Changed(file,
                     fmt::format("it had {}, and now has {}", Described(version), Described(now)));
    }
    unchanged_.insert(tensor.file);
  }
  std::vector<std::byte> bytes(tensor.bytes);
  if (bytes.empty()) return bytes;
  const Status read = store_->ReadInto(file, version, tensor.offset, bytes, call);
  if (absl::IsAborted(read)) return Changed(file, Message(read));
  LH_RETURN_IF_ERROR(read);
  return bytes;
}

}  // namespace longhaul::published
