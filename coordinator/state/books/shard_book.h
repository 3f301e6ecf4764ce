// Shards of checkpoints that a worker was asked to hash (its files), or the coordinator (its
// copies). A worker may also be asked to send copies of its whole shards.
//
//   for (ShardCheck& check : ChecksOf(manifest, about, connected)) {
//     id = book.Begin(check, now);                                    // and ask
//   }
//   if (auto check = book.TakeAnswered(id, incarnation, message)) ...  // the answer is about
//   `check` for (id : book.Late(now)) book.Take(id);                           // no answer
//
// Pure data; not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "coordinator/state/ids.h"
#include "longhaul/v1/worker.pb.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

struct ShardCheck {
  enum class Purpose : uint8_t {
    kResume,  // a draft waits for the answer
    kVerify,  // `longhaul checkpoints --verify` waits for the answer
    kCopy,    // another worker or the coordinator needs a copy
  };
  Purpose purpose = Purpose::kResume;
  RequestId request{0};  // kVerify
  RunId run;
  Epoch epoch;  // the run's epoch when it was asked
  uint64_t step = 0;
  std::optional<WorkerId> worker;  // nullopt: the coordinator's copies
  Incarnation incarnation;
  std::vector<v1::CheckpointFile> files;
  bool copy = false;           // also send copies of the files
  std::optional<WorkerId> to;  // receiver; nullopt: the coordinator
  // Hashing and sending shards takes long; a worker that is silent for this long will never answer.
  absl::Duration limit = absl::Minutes(30);
  MonoTime until;  // set by the book
};

// Returns the incarnation of a connected worker; nullopt: it is not connected.
using ConnectedWorkers = std::function<std::optional<Incarnation>(const WorkerId&)>;

// ---- Holders of a file. Workers are named by their ids; "" is the coordinator. ----------------

// Returns the holder with this id; nullptr: it does not hold the file.
const v1::ShardHolder* FindHolder(const v1::CheckpointFile& file, const std::string& holder);
// Whether the holder has the file, without a known fault.
bool IsHeldBy(const v1::CheckpointFile& file, const std::string& holder);
inline bool IsCopied(const v1::CheckpointFile& file) {
  return IsHeldBy(file, "");
}
void AddHolder(const std::string& worker_id, const std::string& worker_name,
               v1::CheckpointFile* file);
void RemoveHolder(const std::string& worker_id, v1::CheckpointFile* file);

// ---- Checks to begin. `about` has purpose, request, run, epoch and step of the checks. --------

// Returns the workers whose stores have the files of a checkpoint.
std::set<std::string> HoldersOf(const v1::CheckpointManifest& manifest);
// Returns checks in which all holders that can be asked hash their files: the coordinator first,
// then each worker.
std::vector<ShardCheck> ChecksOf(const v1::CheckpointManifest& manifest, const ShardCheck& about,
                                 const ConnectedWorkers& connected);
// Returns checks in which, for each file, a connected worker that holds it hashes it and sends a
// copy: the worker that wrote it, if that is connected.
std::vector<ShardCheck> CopyChecksOf(std::span<const v1::CheckpointFile> files,
                                     const ShardCheck& about, const ConnectedWorkers& connected);
// Returns the number of replicas that wrote the checkpoint.
uint32_t ReplicasOf(const v1::CheckpointManifest& manifest);
// Returns the files of a checkpoint with tensors of this cell, for any split that wrote them, and
// with tables of its boundaries. `replicas`: the run's new number. If as many with the same split
// wrote the checkpoint, each goes on with its own part of the state; else all parts are needed.
std::vector<v1::CheckpointFile> FilesOfCell(const v1::CheckpointManifest& manifest,
                                            const Cell& cell, uint32_t replicas = 1);
// A file that a cell of a new plan needs, and that its worker neither has whole on its own disk nor
// can fetch from the coordinator.
struct ShardMove {
  v1::CheckpointFile file;
  WorkerId to;
};
std::vector<ShardMove> MovesFor(const v1::CheckpointManifest& manifest,
                                std::span<const Cell> cells);

// (step, holder, file) of shards that were hashed and are whole.
using VerifiedShards = std::set<std::tuple<uint64_t, std::string, std::string>>;

class ShardBook {
 public:
  // `first`: the number of the first check. Workers may still be at checks of an earlier process.
  explicit ShardBook(uint64_t first = 1) : next_check_(first) {}

  // ---- Checks under way -----------------------------------------------------------

  uint64_t Begin(ShardCheck check, MonoTime now);
  // Null: there is no such check. Valid until the book changes.
  const ShardCheck* Find(uint64_t id) const;
  // Each takes a check out; nullopt if the answer belongs to no check.
  std::optional<ShardCheck> TakeAnswered(const WorkerId& worker, const Incarnation& incarnation,
                                         const v1::WorkerMessage& message);
  std::optional<ShardCheck> TakeAnsweredByCopies(uint64_t id);
  std::optional<ShardCheck> Take(uint64_t id);
  void DropResumeChecks(const RunId& run);

  std::vector<uint64_t> Late(MonoTime now) const;
  // Checks that wait for this worker.
  std::vector<uint64_t> AskedOf(const WorkerId& worker) const;
  bool IsCheckingToResume(const RunId& run) const {
    return IsUnderWay(run, std::nullopt, ShardCheck::Purpose::kResume);
  }
  bool IsInUse(const RunId& run) const;
  // A copy of the checkpoint of `step` is under way; without `step`, of any checkpoint.
  bool IsCopying(const RunId& run, std::optional<uint64_t> step = std::nullopt) const {
    return IsUnderWay(run, step, ShardCheck::Purpose::kCopy);
  }
  // Whether some worker was asked to send the coordinator a copy of this content. `from`: if set,
  // this worker.
  bool ExpectsCopy(const std::string& sha256, uint64_t bytes,
                   const std::optional<WorkerId>& from = std::nullopt) const;
  // Returns the checks that asked for a shard with this content to be sent to the coordinator.
  // `from`: as above. Valid until the book changes.
  std::vector<const ShardCheck*> ExpectingCopy(const std::string& sha256,
                                               const std::optional<WorkerId>& from) const;
  // The contents of all expected copies.
  std::vector<std::string> ExpectedCopies() const;
  // MonoTime::max(): never.
  MonoTime NextWake() const;

  // ---- `longhaul checkpoints --verify` --------------------------------------------

  void BeginVerification(RequestId request);
  bool IsVerifying(RequestId request) const { return verifications_.contains(request); }
  // Records that a file of a check is whole. Only checks of kVerify count.
  void NoteVerified(const ShardCheck& check, const v1::CheckpointFile& file);
  // Ends the verification and returns the whole shards; nullopt while its checks are under way, or
  // if there is no such verification.
  std::optional<VerifiedShards> TakeVerified(RequestId request);

 private:
  bool IsUnderWay(const RunId& run, std::optional<uint64_t> step,
                  ShardCheck::Purpose purpose) const;

  std::map<uint64_t, ShardCheck> checks_;
  uint64_t next_check_;
  std::map<RequestId, VerifiedShards> verifications_;
};

}  // namespace longhaul::coordinator
