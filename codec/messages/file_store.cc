#include "codec/messages/file_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/units.h"

namespace longhaul::codec {
namespace {

constexpr std::array<char, 8> kRecordsMagic = {'L', 'H', 'M', 'S', 'G', 'R', 'E', 'C'};
constexpr uint64_t kPage = 4096;
constexpr uint64_t kRecordAlignment = 64;
constexpr uint64_t kNoStep = std::numeric_limits<uint64_t>::max();

constexpr uint64_t RoundUp(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

uint64_t FirstRecord(uint64_t samples) {
  return kPage + RoundUp(samples, kPage);
}

Status NoRoom(const FileStoreOptions& options, uint64_t bytes, int error_number) {
  if (error_number != ENOSPC) {
    return FromErrno(fmt::format("cannot make the message buffers in {}", options.folder),
                     error_number);
  }
  struct statvfs disk {};
  uint64_t free = 0;
  if (::statvfs(options.folder.c_str(), &disk) == 0) {
    free = uint64_t{disk.f_bavail} * disk.f_frsize;
  }
  return ResourceExhausted(
      "no room for the message buffers of {} samples in {}: they take {} ({} bytes), {} ({} bytes) "
      "are free; free some, or choose a codec without buffers",
      options.samples, options.folder, FormatBytes(static_cast<double>(bytes)), bytes,
      FormatBytes(static_cast<double>(free)), free);
}

}  // namespace

// As the table in the header file.
struct FileStore::Header {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t zero;
  uint64_t samples;
  uint64_t record_bytes;
  uint64_t step;
  std::array<char, 64> identity;
};

FileStore::FileStore(FileStoreOptions options)
    : options_(std::move(options)),
      identity_hash_(Sha256Hex(options_.identity)),
      journal_(options_.folder, options_.record_bytes) {}

FileStore::~FileStore() {
  if (!mapping_.empty()) ::munmap(mapping_.data(), mapping_.size());
}

uint64_t FileStore::FileBytes(uint64_t samples, size_t record_bytes) {
  return FirstRecord(samples) + samples * RoundUp(record_bytes, kRecordAlignment);
}

FileStore::Header* FileStore::header() const {
  return reinterpret_cast<Header*>(mapping_.data());
}

std::byte* FileStore::presence() const {
  return mapping_.data() + kPage;
}

std::byte* FileStore::RecordAt(uint64_t sample) const {
  LH_CHECK(sample < options_.samples, "sample {} of {}", sample, options_.samples);
  return mapping_.data() + FirstRecord(options_.samples) +
         sample * RoundUp(options_.record_bytes, kRecordAlignment);
}

StatusOr<std::unique_ptr<FileStore>> FileStore::Open(FileStoreOptions options) {
  if (options.samples == 0 || options.record_bytes == 0 ||
      options.samples > (uint64_t{1} << 62) / (options.record_bytes + kRecordAlignment)) {
    return InvalidArgument("cannot keep {} records of {} bytes", options.samples,
                           options.record_bytes);
  }
  LH_RETURN_IF_ERROR(MakeDirectories(options.folder));
  auto store = std::unique_ptr<FileStore>(new FileStore(std::move(options)));
  LH_RETURN_IF_ERROR(store->Map());
  if (!store->Usable()) {
    store->Format();
    LH_RETURN_IF_ERROR(store->Clear(Step(0)));
  }
  return store;
}

Status FileStore::Map() {
  const std::string path = options_.folder + "/records";
  const uint64_t bytes = FileBytes(options_.samples, options_.record_bytes);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return FromErrno(fmt::format("cannot open {}", path), errno);
  struct stat info {};
  int error = ::fstat(fd, &info) == 0 ? 0 : errno;
  const bool fits = error == 0 && static_cast<uint64_t>(info.st_size) == bytes;
  // What had another size had another content.
  if (error == 0 && !fits && ::ftruncate(fd, 0) != 0) error = errno;
  // Also for a file that was being made when its process was killed.
  if (error == 0) error = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  void* mapped = MAP_FAILED;
  if (error == 0) {
    mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) error = errno;
  }
  ::close(fd);
  if (error != 0) {
    if (!fits) ::unlink(path.c_str());
    return NoRoom(options_, bytes, error);
  }
  mapping_ = {static_cast<std::byte*>(mapped), bytes};
  return absl::OkStatus();
}

bool FileStore::Usable() const {
  const Header& header = *this->header();
  return header.magic == kRecordsMagic && header.version == kVersion && header.zero == 0 &&
         header.samples == options_.samples && header.record_bytes == options_.record_bytes &&
         header.step != kNoStep &&
         std::equal(header.identity.begin(), header.identity.end(), identity_hash_.begin(),
                    identity_hash_.end());
}

void FileStore::Format() {
  Header& header = *this->header();
  header.step = kNoStep;
  KillPoint();
  header.magic = kRecordsMagic;
  header.version = kVersion;
  header.zero = 0;
  header.samples = options_.samples;
  header.record_bytes = options_.record_bytes;
  std::copy(identity_hash_.begin(), identity_hash_.end(), header.identity.begin());
}

Status FileStore::Clear(Step step) {
  header()->step = kNoStep;
  KillPoint();
  std::memset(presence(), 0, options_.samples);
  KillPoint();
  LH_ASSIGN_OR_RETURN(const std::vector<Step> steps, journal_.Steps());
  for (const Step one : steps) {
    LH_RETURN_IF_ERROR(journal_.Remove(one));
    KillPoint();
  }
  header()->step = step.value();
  KillPoint();
  return absl::OkStatus();
}

Status FileStore::Undo(Step step) {
  return journal_.Replay(step, [this](uint64_t sample, std::span<const std::byte> before) {
    if (sample >= options_.samples) return;  // of another store, which the digest will tell
    if (!before.empty()) std::memcpy(RecordAt(sample), before.data(), before.size());
    KillPoint();
    presence()[sample] = static_cast<std::byte>(before.empty() ? 0 : 1);
    KillPoint();
  });
}

StatusOr<bool> FileStore::RollBack(Step step) {
  LH_ASSIGN_OR_RETURN(const std::vector<Step> steps, journal_.Steps());
  uint64_t last = header()->step;
  if (!steps.empty()) last = std::max(last, steps.back().value());
  bool known = step != Step(0) && last >= step.value();
  // A file for every step since: one that is missing had changes that nobody knows.
  for (uint64_t one = step.value() + 1; known && one <= last; ++one) {
    known = std::binary_search(steps.begin(), steps.end(), Step(one));
  }
  for (uint64_t one = last; known && one > step.value(); --one) {
    // Twice does no harm, where the process is killed on the way.
    known = Undo(Step(one)).ok();
    if (!known) break;
    header()->step = one - 1;
    KillPoint();
    LH_RETURN_IF_ERROR(journal_.Remove(Step(one)));
    KillPoint();
  }
  if (!known) LH_RETURN_IF_ERROR(Clear(step));
  return known || step == Step(0);
}

std::span<const std::byte> FileStore::Read(uint64_t sample) const {
  const std::byte* record = RecordAt(sample);
  if (presence()[sample] == std::byte{0}) return {};
  return {record, options_.record_bytes};
}

StatusOr<std::span<std::byte>> FileStore::Write(Step step, uint64_t sample) {
  if (step.value() < header()->step) {
    return InvalidArgument("expected a step from {} on; {} came", header()->step, step.value());
  }
  Status status = journal_.Add(step, sample, Read(sample));
  if (!status.ok()) {
    return Annotate(status, "the undo journal of the message buffers");
  }
  KillPoint();
  header()->step = step.value();
  KillPoint();
  presence()[sample] = std::byte{1};
  KillPoint();
  return std::span(RecordAt(sample), options_.record_bytes);
}

void FileStore::Prefetch(std::span<const uint64_t> samples) {
  const auto base = reinterpret_cast<uintptr_t>(mapping_.data());
  for (const uint64_t sample : samples) {
    if (sample >= options_.samples || presence()[sample] == std::byte{0}) continue;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(RecordAt(sample)) / kPage * kPage;
    const uintptr_t end = reinterpret_cast<uintptr_t>(RecordAt(sample)) + options_.record_bytes;
    // A hint; what comes of it is the system's.
    (void)::madvise(mapping_.data() + (begin - base), end - begin, MADV_WILLNEED);
  }
}

uint64_t FileStore::Digest() const {
  uint64_t digest = 0;
  for (uint64_t sample = 0; sample < options_.samples; ++sample) {
    const std::span<const std::byte> record = Read(sample);
    if (record.empty()) continue;
    digest += Checksum64(std::as_bytes(std::span(&sample, 1)), record);
  }
  return digest;
}

}  // namespace longhaul::codec
