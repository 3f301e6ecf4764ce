// A message store in a memory-mapped file, with a journal to undo changes. A worker has one store
// for each direction of each boundary between its stage and a neighbouring stage.
//
//   <folder>/records           the table below
//   <folder>/undo-<step>       undo_journal.h
//
//   offset size  field of `records` (little-endian)
//        0    8  magic "LHMSGREC"
//        8    4  version (1)
//       12    4  zero
//       16    8  samples
//       24    8  bytes of a record
//       32    8  the last step that changed a record. All ones: the step is not known, and the
//                records must not be read
//       40   64  SHA-256 of the identity, as hexadecimal digits
//     4096       samples x 1 byte: 1 if the sample has a record; padded to a multiple of 4096
//                samples x bytes of a record, each padded to a multiple of 64
//
// The operating system keeps the mapped pages, and writes them to the disk in its own time. So the
// writes of a killed process (kill -9) survive. After a power loss the records may have any
// contents; sender and receiver detect this by comparing Digest().
//
// Disk space for `records` is allocated when the store is made, because access to a mapped page
// without disk space would end the process.
//
// Threads: any thread, one call at a time, except Forget, which may run during other calls. Errors:
// the code fits errno; a full disk is kResourceExhausted. Write returns kInvalidArgument for a step
// before the last one. Read and Write end the program for a sample that is not below samples().
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "codec/message_store.h"
#include "codec/messages/undo_journal.h"

namespace longhaul::codec {

struct FileStoreOptions {
  std::string folder;  // for this store only; created if missing
  // Identifies the run and the data. Open drops the records of another identity.
  std::string identity;
  uint64_t samples = 0;     // Open returns kInvalidArgument for 0
  size_t record_bytes = 0;  // Open returns kInvalidArgument for 0
  // For tests: called between any two changes of the files; a test may kill the process then. May
  // be empty.
  std::function<void()> at_kill_point = {};
};

class FileStore final : public MessageStore {
 public:
  static constexpr uint32_t kVersion = 1;  // of `records`

  // Opens or makes the store. Drops all records if the header of `records` is damaged, or names
  // another identity, number of samples or size of records. Does not check the records.
  static StatusOr<std::unique_ptr<FileStore>> Open(FileStoreOptions options);
  ~FileStore() override;
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  // Returns the bytes of disk that a store takes, without the journal.
  static uint64_t FileBytes(uint64_t samples, size_t record_bytes);

  uint64_t samples() const override { return options_.samples; }
  size_t record_bytes() const override { return options_.record_bytes; }
  std::span<const std::byte> Read(uint64_t sample) const override;
  StatusOr<std::span<std::byte>> Write(Step step, uint64_t sample) override;
  void Prefetch(std::span<const uint64_t> samples) override;

  // Returns the store to its state at the end of step `step`, and returns true. If this state is
  // not known, or the last change was before `step`, drops all records and returns false. For step
  // 0, drops all records and returns true. A process must call it before its first Write.
  StatusOr<bool> RollBack(Step step);
  // Drops all records and the journal. Counts as a change in step `step`: Write then refuses
  // earlier steps.
  Status Clear(Step step);
  // Drops the journal of the steps up to `step`, to free disk space. The store can then not be
  // rolled back to a step before `step`. Ignores errors: files that cannot be removed stay.
  void Forget(Step step) const { journal_.Forget(step); }
  // Reads all records, which may take long. Returns a hash of the records with their samples'
  // numbers; 0 if there are no records.
  uint64_t Digest() const;

 private:
  struct Header;
  explicit FileStore(FileStoreOptions options);
  Status Map();
  bool Usable() const;
  void Format();
  Status Undo(Step step);
  void KillPoint() const {
    if (options_.at_kill_point) options_.at_kill_point();
  }
  Header* header() const;
  std::byte* presence() const;
  std::byte* RecordAt(uint64_t sample) const;

  const FileStoreOptions options_;
  const std::string identity_hash_;
  UndoJournal journal_;
  std::span<std::byte> mapping_;
};

}  // namespace longhaul::codec
