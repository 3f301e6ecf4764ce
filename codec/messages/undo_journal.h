// Keeps the old contents of records that a message store overwrites, so that steps can be undone.
// Each step that changed records has a file of its own:
//
//   undo-<step, 16 hexadecimal digits>
//
//   offset size  field (little-endian)
//        0    8  magic "LHMSGUND"
//        8    4  version (1)
//       12    4  zero
//       16    8  step
//       24    8  bytes of a record
//       32       entries. An entry: 8 bytes sample; 8 bytes 1 if the sample had a record, else 0;
//                the old record if the sample had one; 8 bytes XXH3-64 of the entry before them
//
// An entry is written before its record changes, and the system keeps what a killed process has
// written. So only the last entry can be cut short, and then its record has not changed yet.
//
// Threads: any thread, one call at a time. Only Forget may run during other calls, for steps that
// have ended. Errors: the code fits errno, the text names the file; a full disk is
// kResourceExhausted. After a failed Add the file may end in a torn entry: do not add to that step
// again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace longhaul::codec {

class UndoJournal {
 public:
  static constexpr uint32_t kVersion = 1;

  UndoJournal(std::string folder, size_t record_bytes);
  ~UndoJournal();
  UndoJournal(const UndoJournal&) = delete;
  UndoJournal& operator=(const UndoJournal&) = delete;

  // Returns the bytes of disk that one entry takes with its record.
  static uint64_t EntryBytes(size_t record_bytes) { return 24 + uint64_t{record_bytes}; }

  // Writes the old record of a sample. `before` is empty if the sample had no record. Steps must
  // not decrease from call to call. kAlreadyExists: an earlier process left a file of this step.
  Status Add(Step step, uint64_t sample, std::span<const std::byte> before);
  // Calls `restore` for the entries of a step, newest first. `before` is empty if the sample had no
  // record, and is valid only during the call. kNotFound if the step has no file, kDataLoss if the
  // file is damaged; then `restore` was not called.
  using Restore = std::function<void(uint64_t sample, std::span<const std::byte> before)>;
  Status Replay(Step step, const Restore& restore) const;
  // Returns the steps that have files, in ascending order.
  StatusOr<std::vector<Step>> Steps() const;
  // Removes the file of a step. Succeeds if there is none.
  Status Remove(Step step);
  // Removes all files up to `last`. A file that cannot be removed is tried again at the next call.
  void Forget(Step last) const;

 private:
  std::string PathOf(Step step) const;
  Status Begin(Step step);

  const std::string folder_;
  const size_t record_bytes_;
  int fd_ = -1;  // descriptor of the file of step open_
  Step open_{0};
};

}  // namespace longhaul::codec
