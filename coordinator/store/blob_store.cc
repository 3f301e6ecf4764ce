#include "coordinator/store/blob_store.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/time/clock.h"
#include "base/disk_call.h"
#include "base/file.h"
#include "coordinator/store/disk_room.h"

namespace longhaul::coordinator {
namespace {

constexpr std::string_view kTemporaryPrefix = "tmp-";

Status CheckHash(std::string_view sha256) {
  if (IsSha256Hex(sha256)) return absl::OkStatus();
  return InvalidArgument("blob: expected a SHA-256 as 64 lower-case hexadecimal digits, got '{}'",
                         sha256.substr(0, 80));
}

Status MoveInto(const std::string& temporary, const std::string& folder,
                const std::string& target) {
  if (std::rename(temporary.c_str(), target.c_str()) != 0) {
    return FromErrno(fmt::format("cannot rename {} to {}", temporary, target), errno);
  }
  return SyncPath(folder);
}

}  // namespace

StatusOr<std::string> BlobReader::ReadAt(uint64_t offset, size_t limit) const {
  std::string bytes(offset < size_ ? std::min<uint64_t>(limit, size_ - offset) : 0, '\0');
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t n = ::pread(fd_.get(), bytes.data() + filled, bytes.size() - filled,
                              static_cast<off_t>(offset + filled));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FromErrno("cannot read a blob", errno);
    if (n == 0) return absl::DataLossError("a blob became shorter while it was read");
    filled += static_cast<size_t>(n);
  }
  return bytes;
}

Status BlobReader::LookThrough(size_t overlap,
                               absl::FunctionRef<bool(std::string_view piece)> look) const {
  constexpr size_t kPieceBytes = 1 << 20;
  for (uint64_t offset = 0; offset < size_; offset += kPieceBytes) {
    LH_ASSIGN_OR_RETURN(const std::string piece, ReadAt(offset, kPieceBytes + overlap));
    if (!look(piece)) break;
  }
  return absl::OkStatus();
}

BlobUpload::BlobUpload(std::string folder, std::string sha256, uint64_t total_bytes,
                       std::string temporary, UniqueFd fd, std::shared_ptr<Promised> promised,
                       std::shared_ptr<const FollowerOfBlobs> follower)
    : folder_(std::move(folder)),
      sha256_(std::move(sha256)),
      total_bytes_(total_bytes),
      temporary_(std::move(temporary)),
      fd_(std::move(fd)),
      promised_(std::move(promised)),
      follower_(std::move(follower)) {
  // Room is counted as taken before the bytes come, so that uploads side by side do not fill the
  // disk.
  promised_->bytes += total_bytes_;
  ++promised_->uploads;
}

BlobUpload::~BlobUpload() {
  promised_->bytes -= total_bytes_ - written_;
  --promised_->uploads;
  if (fd_) ::unlink(temporary_.c_str());
}

Status BlobUpload::Append(std::string_view bytes) {
  if (bytes.size() > total_bytes_ - written_) {
    return InvalidArgument("blob {}: {} bytes were announced, more came", sha256_, total_bytes_);
  }
  hash_.Update(bytes);
  written_ += bytes.size();
  promised_->bytes -= bytes.size();
  const DiskCall call("writing", temporary_);
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FromErrno(fmt::format("cannot write {}", temporary_), errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

Status BlobUpload::Finish() {
  if (written_ != total_bytes_) {
    return InvalidArgument("blob {}: {} bytes were announced, {} came; send it again", sha256_,
                           total_bytes_, written_);
  }
  if (const std::string actual = hash_.HexDigest(); actual != sha256_) {
    return DataLoss(
        "blob: the bytes that came have the hash {}, announced was {}; the file changed "
        "while it was read or was damaged on the way: send it again",
        actual, sha256_);
  }
  // Before the rename: the name must never stand for bytes that a power cut can take.
  {
    const DiskCall call("fsync", temporary_);
    if (::fsync(fd_.get()) != 0) {
      return FromErrno(fmt::format("cannot fsync {}", temporary_), errno);
    }
  }
  LH_RETURN_IF_ERROR(MoveInto(temporary_, folder_, folder_ + "/" + sha256_));
  fd_.Reset();
  if (const auto follower = follower_->Get()) follower->Added(sha256_, total_bytes_);
  return absl::OkStatus();
}

void FollowerOfBlobs::Set(std::weak_ptr<BlobFollower> follower) {
  const std::lock_guard lock(mutex_);
  follower_ = std::move(follower);
}

std::shared_ptr<BlobFollower> FollowerOfBlobs::Get() const {
  const std::lock_guard lock(mutex_);
  return follower_.lock();
}

StatusOr<std::unique_ptr<BlobStore>> BlobStore::Open(const std::string& folder) {
  LH_RETURN_IF_ERROR(MakeDirectories(folder));
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().filename().string().starts_with(kTemporaryPrefix)) {
      std::error_code ignored;  // It costs room only; the next start tries again.
      std::filesystem::remove(it->path(), ignored);
    }
  }
  if (error) return FromErrno(fmt::format("cannot list {}", folder), error.value());
  return std::unique_ptr<BlobStore>(new BlobStore(folder));
}

bool BlobStore::Has(std::string_view sha256) const {
  std::error_code error;
  return IsSha256Hex(sha256) && std::filesystem::exists(PathOf(sha256), error);
}

bool BlobStore::Claim(std::string_view sha256) const {
  if (!IsSha256Hex(sha256)) return false;
  const std::lock_guard lock(claims_);
  // The time of the file says when it was last wanted; RemoveUnclaimed goes by it.
  if (::utimensat(AT_FDCWD, PathOf(sha256).c_str(), nullptr, 0) == 0) return true;
  return errno != ENOENT && Has(sha256);
}

StatusOr<bool> BlobStore::RemoveUnclaimed(std::string_view sha256, absl::Duration age) const {
  LH_RETURN_IF_ERROR(CheckHash(sha256));
  const std::lock_guard lock(claims_);
  struct stat info {};
  if (::stat(PathOf(sha256).c_str(), &info) != 0) {
    if (errno == ENOENT) return false;
    return FromErrno(fmt::format("cannot look at {}", PathOf(sha256)), errno);
  }
  if (absl::Now() - absl::TimeFromTimespec(info.st_mtim) < age) return false;
  LH_RETURN_IF_ERROR(Remove(sha256));
  return true;
}

StatusOr<std::vector<BlobStore::Entry>> BlobStore::List() const {
  std::vector<Entry> entries;
  std::error_code error;
  const absl::Time now = absl::Now();
  for (std::filesystem::directory_iterator it(folder_, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    struct stat info {};
    // A file that was deleted since the folder was read is left out.
    if (!IsSha256Hex(name) || ::stat(it->path().c_str(), &info) != 0) continue;
    entries.push_back({.sha256 = name,
                       .bytes = static_cast<uint64_t>(info.st_size),
                       .age = now - absl::TimeFromTimespec(info.st_mtim)});
  }
  if (error) return FromErrno(fmt::format("cannot list {}", folder_), error.value());
  return entries;
}

std::string BlobStore::PathOf(std::string_view sha256) const {
  return fmt::format("{}/{}", folder_, sha256);
}

std::string BlobStore::TemporaryPath() const {
  return fmt::format("{}/{}{}", folder_, kTemporaryPrefix, RandomUuid());
}

Status BlobStore::HasRoomFor(uint64_t bytes) const {
  const StatusOr<DiskRoom::Space> space = DiskRoom::LookAt(folder_);
  if (!space.ok()) return absl::OkStatus();  // the write will tell
  const uint64_t taken = promised_->bytes + kKeptFreeBytes;
  const uint64_t left = space->available > taken ? space->available - taken : 0;
  return bytes <= left ? absl::OkStatus() : DiskIsFull(folder_, bytes, left);
}

StatusOr<std::unique_ptr<BlobUpload>> BlobStore::StartUpload(std::string_view sha256,
                                                             uint64_t total_bytes) const {
  LH_RETURN_IF_ERROR(CheckHash(sha256));
  if (promised_->uploads >= kMaxUploads) {
    return ResourceExhausted("blob {}: {} uploads are under way already; try again later", sha256,
                             kMaxUploads);
  }
  LH_RETURN_IF_ERROR(Annotate(HasRoomFor(total_bytes), fmt::format("blob {}", sha256)));
  const std::string temporary = TemporaryPath();
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return FromErrno(fmt::format("cannot create {}", temporary), errno);
  return std::unique_ptr<BlobUpload>(new BlobUpload(
      folder_, std::string(sha256), total_bytes, temporary, std::move(fd), promised_, follower_));
}

Status BlobStore::Check(std::string_view sha256) const {
  std::error_code error;
  if (!std::filesystem::exists(PathOf(sha256), error)) {
    if (error) return FromErrno("it cannot be looked at", error.value());
    if (!std::filesystem::exists(folder_, error)) {
      return Unavailable("the folder {} is not there; is its disk mounted?", folder_);
    }
    return absl::NotFoundError("it is missing");
  }
  const StatusOr<std::string> actual = Sha256HexOfFile(PathOf(sha256));
  if (!actual.ok()) return Annotate(actual.status(), "it cannot be read");
  if (*actual == sha256) return absl::OkStatus();
  // Unlink, not Remove: the other coordinator's copy may be whole.
  LH_RETURN_IF_ERROR(Unlink(sha256));
  if (const auto follower = follower_->Get()) follower->Damaged(std::string(sha256));
  return DataLoss("its contents changed: expected SHA-256 {}, it has {}", sha256, *actual);
}

Status BlobStore::Unlink(std::string_view sha256) const {
  LH_RETURN_IF_ERROR(CheckHash(sha256));
  if (::unlink(PathOf(sha256).c_str()) != 0 && errno != ENOENT) {
    return FromErrno(fmt::format("cannot delete {}", PathOf(sha256)), errno);
  }
  if (removed_) removed_(std::string(sha256));
  return absl::OkStatus();
}

Status BlobStore::Remove(std::string_view sha256) const {
  LH_RETURN_IF_ERROR(Unlink(sha256));
  if (const auto follower = follower_->Get()) follower->Removed(std::string(sha256));
  return absl::OkStatus();
}

StatusOr<BlobReader> BlobStore::OpenBlob(std::string_view sha256) const {
  LH_RETURN_IF_ERROR(CheckHash(sha256));
  UniqueFd fd(::open(PathOf(sha256).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd && errno == ENOENT) return NotFound("the coordinator has no blob {}", sha256);
  if (!fd) return FromErrno(fmt::format("cannot open {}", PathOf(sha256)), errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return FromErrno(fmt::format("cannot stat {}", sha256), errno);
  return BlobReader(std::move(fd), static_cast<uint64_t>(info.st_size));
}

StatusOr<std::string> BlobStore::Adopt(const std::string& temporary) const {
  LH_ASSIGN_OR_RETURN(const std::string sha256, Sha256HexOfFile(temporary));
  LH_RETURN_IF_ERROR(SyncPath(temporary));
  LH_RETURN_IF_ERROR(MoveInto(temporary, folder_, PathOf(sha256)));
  if (const auto follower = follower_->Get()) {
    std::error_code error;
    follower->Added(sha256, std::filesystem::file_size(PathOf(sha256), error));
  }
  return sha256;
}

}  // namespace longhaul::coordinator
