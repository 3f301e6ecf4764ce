#include "transport/collective/mapped/region.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <utility>

#include "base/file.h"
#include "base/unique_fd.h"

namespace longhaul::collective::mapped {
namespace {

StatusOr<SharedPages> Map(int fd, size_t bytes) {
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return FromErrno("mapping memory that ranks share", errno);
  return SharedPages(static_cast<std::byte*>(data), bytes);
}

// A file without a name, which lives as long as somebody has it open or mapped.
StatusOr<UniqueFd> NewFile(size_t bytes) {
  UniqueFd file(::memfd_create("longhaul-collective", MFD_CLOEXEC));
  if (!file) return FromErrno("making memory that ranks share", errno);
  // Taken now: what cannot be had later would end the process.
  int error = 0;
  do {
    error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error != 0) {
    return FromErrno(fmt::format("making {} bytes of memory that ranks share", bytes), error);
  }
  return file;
}

// What a rank tells: where its file can be opened while it has it open, and which file that is.
std::string WordOf(const UniqueFd& file) {
  struct stat about {};
  static_cast<void>(::fstat(file.get(), &about));
  return fmt::format("/proc/{}/fd/{} {}", ::getpid(), file.get(), about.st_ino);
}

StatusOr<UniqueFd> Open(const std::string& word, uint32_t rank, size_t bytes) {
  const size_t blank = word.find(' ');
  const std::string path = word.substr(0, blank);
  uint64_t inode = 0;
  if (blank != std::string::npos) {
    std::from_chars(word.data() + blank + 1, word.data() + word.size(), inode);
  }
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat about {};
  if (!file || ::fstat(file.get(), &about) != 0 || about.st_ino != inode ||
      about.st_size != static_cast<off_t>(bytes)) {
    return FailedPrecondition(
        "cannot open the memory that rank {} shares, {}: ranks that exchange through "
        "host memory must be of one user and see each other's processes",
        rank, path);
  }
  return file;
}

}  // namespace

SharedPages::SharedPages(SharedPages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
SharedPages& SharedPages::operator=(SharedPages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
SharedPages::~SharedPages() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

StatusOr<std::vector<Region>> ShareRegions(Member& member, const cuda::Device& device, size_t bytes,
                                           Deadline deadline) {
  LH_ASSIGN_OR_RETURN(const UniqueFd own, NewFile(bytes));
  LH_ASSIGN_OR_RETURN(const std::vector<std::string> words, member.Tell(WordOf(own), deadline));
  std::vector<Region> regions;
  for (uint32_t rank = 0; rank < words.size(); ++rank) {
    LH_ASSIGN_OR_RETURN(const UniqueFd file, Open(words[rank], rank, bytes));
    LH_ASSIGN_OR_RETURN(SharedPages pages, Map(file.get(), bytes));
    LH_ASSIGN_OR_RETURN(cuda::MappedMemory mapped,
                        cuda::MappedMemory::Create(device, pages.data(), bytes));
    regions.push_back({std::move(pages), std::move(mapped)});
  }
  // All have opened all, so this rank may close its file.
  LH_RETURN_IF_ERROR(member.Tell("", deadline).status());
  return regions;
}

}  // namespace longhaul::collective::mapped
