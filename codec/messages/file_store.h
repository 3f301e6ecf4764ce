// Messages in a memory-mapped file with an undo journal: a worker's store for one boundary.
//
//   <folder>/records           see below
//   <folder>/undo-<step>       undo_journal.h
//
//   offset size  field of `records` (little-endian)
//        0    8  magic "LHMSGREC"
//        8    4  version (1)
//       12    4  zero
//       16    8  samples
//       24    8  bytes of a record
//       32    8  the last step that changed a record; all ones: no step is known, nothing is to be
//                read
//       40   64  SHA-256 of the identity, as text
//     4096       samples x 1 byte: 1 where there is a record; to the next multiple of 4096
//                samples x (bytes of a record, to the next multiple of 64)
//
// The system writes the pages back in its own time. Writes of a killed process (kill -9) survive.
// After a power loss the records may have any contents; the two sides of a boundary detect this by
// comparing Digest().
//
// Disk space for `records` is allocated when the store is made, because access to a mapped page
// without space ends the process. Threads: one at a time, except Forget, which any thread may call.
// Errors: by errno; a full disk is kResourceExhausted.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "codec/message_store.h"
#include "codec/messages/undo_journal.h"

namespace longhaul::codec {

struct FileStoreOptions {
  std::string folder;  // of this store only; created if missing
  // identifies the data of the records; a store with another identity begins empty
  std::string identity;
  uint64_t samples = 0;
  size_t record_bytes = 0;
  // For tests: called between any two changes of the disk. A process may end there.
  std::function<void()> at_kill_point = {};
};

class FileStore final : public MessageStore {
 public:
  static constexpr uint32_t kVersion = 1;  // of `records`

  // Unusable records (another identity or size, damage) are dropped.
  static StatusOr<std::unique_ptr<FileStore>> Open(FileStoreOptions options);
  ~FileStore() override;
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  // Bytes of disk that a store takes, without the journal.
  static uint64_t FileBytes(uint64_t samples, size_t record_bytes);

  uint64_t samples() const override { return options_.samples; }
  size_t record_bytes() const override { return options_.record_bytes; }
  std::span<const std::byte> Read(uint64_t sample) const override;
  StatusOr<std::span<std::byte>> Write(Step step, uint64_t sample) override;
  void Prefetch(std::span<const uint64_t> samples) override;

  // Returns to the state after the last change of `step`; call it before the first Write of a
  // process. False if that state is not known: then the store has no records. Step 0 has no
  // records, and returns true.
  StatusOr<bool> RollBack(Step step);
  // Drops all records, as a change of step `step`.
  Status Clear(Step step);
  // Drops the journal of steps up to `step`: the store will not be rolled back to before `step`.
  void Forget(Step step) const { journal_.Forget(step); }
  // Returns a hash of all records and their samples; 0 if there are none. Reads all records.
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
