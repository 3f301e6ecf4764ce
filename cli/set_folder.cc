#include "cli/set_folder.h"

#include <filesystem>
#include <map>
#include <utility>

#include "base/file.h"
#include "base/remote/address.h"
#include "base/remote/store.h"
#include "cli/model_source.h"

namespace longhaul::cli {
namespace {

namespace fs = std::filesystem;

class LocalFolder final : public SetFolder {
 public:
  explicit LocalFolder(fs::path path) : path_(std::move(path)) {}

  std::string Shown(const std::string& file) const override { return (path_ / file).string(); }
  std::string Name() const override { return path_.string(); }
  StatusOr<std::string> ReadWhole(const std::string& file, uint64_t limit) const override {
    return ReadFile(Shown(file), limit);
  }
  StatusOr<uint64_t> SizeOf(const std::string& file) const override {
    std::error_code error;
    const uintmax_t bytes = fs::file_size(path_ / file, error);
    if (error) return NotFound("{}: {}", Shown(file), error.message());
    return bytes;
  }

 private:
  const fs::path path_;
};

class AddressFolder final : public SetFolder {
 public:
  // `sizes`: of all files below the folder, if the server has a list.
  AddressFolder(std::unique_ptr<remote::Store> store, remote::Address at,
                std::map<std::string, uint64_t> sizes)
      : store_(std::move(store)), at_(std::move(at)), sizes_(std::move(sizes)) {}

  std::string Shown(const std::string& file) const override {
    const auto address = remote::Inside(at_, file);
    return remote::ShownAddress(address.ok() ? *address : at_);
  }
  std::string Name() const override { return remote::ToString(at_); }
  StatusOr<std::string> ReadWhole(const std::string& file, uint64_t limit) const override {
    LH_ASSIGN_OR_RETURN(const remote::Address address, remote::Inside(at_, file));
    return store_->ReadAll(address, limit);
  }
  StatusOr<uint64_t> SizeOf(const std::string& file) const override {
    LH_ASSIGN_OR_RETURN(const remote::Address address, remote::Inside(at_, file));
    if (const auto known = sizes_.find(file); known != sizes_.end()) return known->second;
    LH_ASSIGN_OR_RETURN(const remote::Version version, store_->Look(address));
    return version.bytes;
  }

 private:
  const std::unique_ptr<remote::Store> store_;
  const remote::Address at_;
  const std::map<std::string, uint64_t> sizes_;
};

}  // namespace

StatusOr<std::unique_ptr<SetFolder>> OpenSetFolder(const std::string& from,
                                                   const std::string& base) {
  if (!remote::HasScheme(from)) {
    const std::string path = AbsolutePath(from, base);
    LH_RETURN_IF_ERROR(CheckIsNoHubName(from, path, "data set", "datasets/"));
    return std::make_unique<LocalFolder>(path);
  }
  LH_ASSIGN_OR_RETURN(remote::Address at, remote::ParseAddress(from));
  if (at.kind == remote::Kind::kWeb && at.path.find('?') != std::string::npos) {
    return InvalidArgument(
        "{}: expected a folder's address without a query; signed addresses are secrets, which do "
        "not belong into the records of a run",
        remote::ShownAddress(at));
  }
  if (!at.IsFolder()) at.path += '/';
  LH_ASSIGN_OR_RETURN(std::unique_ptr<remote::Store> store, OpenStore(at));
  std::map<std::string, uint64_t> sizes;
  if (at.kind != remote::Kind::kWeb) {
    StatusOr<remote::Listing> listing = store->List(at);
    // Who may read a bucket's objects may not always list them.
    if (at.IsOnHub() || !absl::IsPermissionDenied(listing.status())) {
      LH_RETURN_IF_ERROR(listing.status());
      at = std::move(listing->at);
      for (const remote::Entry& entry : listing->entries) sizes[entry.path] = entry.bytes;
    }
  }
  return std::make_unique<AddressFolder>(std::move(store), std::move(at), std::move(sizes));
}

}  // namespace longhaul::cli
