#include "codec/messages/undo_journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/hash.h"

namespace longhaul::codec {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "undo-";
constexpr std::array<char, 8> kJournalMagic = {'L', 'H', 'M', 'S', 'G', 'U', 'N', 'D'};

struct FileHeader {
  std::array<char, 8> magic = kJournalMagic;
  uint32_t version = UndoJournal::kVersion;
  uint32_t zero = 0;
  uint64_t step = 0;
  uint64_t record_bytes = 0;
  friend bool operator==(const FileHeader&, const FileHeader&) = default;
};
static_assert(sizeof(FileHeader) == 32);

struct EntryHeader {
  uint64_t sample = 0;
  uint64_t has_record = 0;
};
static_assert(sizeof(EntryHeader) == 16);

std::span<const std::byte> BytesOf(const EntryHeader& header) {
  return std::as_bytes(std::span(&header, 1));
}

// All of both parts, however often the system takes less.
Status WriteAll(int fd, std::array<std::span<const std::byte>, 3> parts, const std::string& path) {
  size_t at = 0;
  while (at < parts.size()) {
    std::array<iovec, 3> vectors{};
    int count = 0;
    for (size_t k = at; k < parts.size(); ++k) {
      vectors[static_cast<size_t>(count++)] = {const_cast<std::byte*>(parts[k].data()),
                                               parts[k].size()};
    }
    ssize_t written = ::writev(fd, vectors.data(), count);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FromErrno(fmt::format("cannot write {}", path), errno);
    for (; at < parts.size() && static_cast<size_t>(written) >= parts[at].size(); ++at) {
      written -= static_cast<ssize_t>(parts[at].size());
    }
    if (at < parts.size()) parts[at] = parts[at].subspan(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace

UndoJournal::UndoJournal(std::string folder, size_t record_bytes)
    : folder_(std::move(folder)), record_bytes_(record_bytes) {}

UndoJournal::~UndoJournal() {
  if (fd_ >= 0) ::close(fd_);
}

std::string UndoJournal::PathOf(Step step) const {
  return fmt::format("{}/{}{:016x}", folder_, kPrefix, step.value());
}

Status UndoJournal::Begin(Step step) {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  const std::string path = PathOf(step);
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) return FromErrno(fmt::format("cannot create {}", path), errno);
  open_ = step;
  FileHeader header;
  header.step = step.value();
  header.record_bytes = record_bytes_;
  return WriteAll(fd_, {std::as_bytes(std::span(&header, 1))}, path);
}

Status UndoJournal::Add(Step step, uint64_t sample, std::span<const std::byte> before) {
  if (fd_ < 0 || open_ != step) LH_RETURN_IF_ERROR(Begin(step));
  const EntryHeader header{sample, before.empty() ? uint64_t{0} : uint64_t{1}};
  const uint64_t check = Checksum64(BytesOf(header), before);
  return WriteAll(fd_, {BytesOf(header), before, std::as_bytes(std::span(&check, 1))},
                  PathOf(step));
}

Status UndoJournal::Replay(Step step, const Restore& restore) const {
  const std::string path = PathOf(step);
  LH_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const std::span<const std::byte> bytes = file.bytes();
  FileHeader expected;
  expected.step = step.value();
  expected.record_bytes = record_bytes_;
  // Killed before its header was whole: nothing was changed after it.
  if (bytes.size() < sizeof(FileHeader)) return absl::OkStatus();
  FileHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header != expected) {
    return DataLoss("{} is no undo journal of this store", path);
  }
  std::vector<size_t> entries;
  for (size_t at = sizeof(FileHeader); bytes.size() - at >= sizeof(EntryHeader);) {
    EntryHeader entry;
    std::memcpy(&entry, bytes.data() + at, sizeof(entry));
    if (entry.has_record > 1) {
      return DataLoss("{} is damaged at offset {}", path, at);
    }
    const size_t record = entry.has_record == 1 ? record_bytes_ : 0;
    const size_t size = sizeof(entry) + record + sizeof(uint64_t);
    if (bytes.size() - at < size) break;
    uint64_t check = 0;
    std::memcpy(&check, bytes.data() + at + sizeof(entry) + record, sizeof(check));
    if (check != Checksum64(bytes.subspan(at, sizeof(entry) + record))) {
      return DataLoss("{} is damaged at offset {}", path, at);
    }
    entries.push_back(at);
    at += size;
  }
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    EntryHeader header_of;
    std::memcpy(&header_of, bytes.data() + *entry, sizeof(header_of));
    restore(header_of.sample, bytes.subspan(*entry + sizeof(header_of),
                                            header_of.has_record == 1 ? record_bytes_ : 0));
  }
  return absl::OkStatus();
}

StatusOr<std::vector<Step>> UndoJournal::Steps() const {
  std::vector<Step> steps;
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    uint64_t step = 0;
    const char* const last = name.data() + name.size();
    const auto [parsed, problem] = std::from_chars(name.data() + kPrefix.size(), last, step, 16);
    if (problem == std::errc() && parsed == last) steps.emplace_back(step);
  }
  if (error) return FromErrno(fmt::format("cannot list {}", folder_), error.value());
  std::sort(steps.begin(), steps.end());
  return steps;
}

Status UndoJournal::Remove(Step step) {
  if (fd_ >= 0 && open_ == step) ::close(std::exchange(fd_, -1));
  const std::string path = PathOf(step);
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return FromErrno(fmt::format("cannot remove {}", path), errno);
}

void UndoJournal::Forget(Step last) const {
  const StatusOr<std::vector<Step>> steps = Steps();
  if (!steps.ok()) return;
  for (const Step step : *steps) {
    if (step <= last) ::unlink(PathOf(step).c_str());
  }
}

}  // namespace longhaul::codec
