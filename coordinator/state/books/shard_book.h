// The checks of shards that are under way. A shard is a file of a checkpoint. In a check a worker
// hashes shards on its disk, or the coordinator hashes its copies of shards. The worker may also be
// asked to send copies of its undamaged shards.
//
//   for (ShardCheck& check : ChecksOf(manifest, about, connected)) {
//     id = book.Begin(check, now);                                     // and ask
//   }
//   if (auto check = book.TakeAnswered(worker, incarnation, message)) ...
//   for (id : book.Late(now)) book.Take(id);                           // no answer came
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
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "coordinator/state/books/shard_files.h"
#include "coordinator/state/ids.h"
#include "longhaul/v1/worker.pb.h"

namespace longhaul::coordinator {

struct ShardCheck {
  enum class Purpose : uint8_t {
    kResume,  // a run that continues from the checkpoint waits for the answer
    kVerify,  // a call that lists or gathers checkpoints waits for the answer
    kCopy,    // another worker or the coordinator needs a copy
    kHook,    // a hook waits for the coordinator's copies
    kStore,   // an object store gets a copy
    kAudit,   // an audit waits for the answer
  };
  Purpose purpose = Purpose::kResume;
  RequestId request{0};  // kVerify: the call
  RunId run;
  Epoch epoch;  // the run's epoch (attempt) when the check began
  uint64_t step = 0;
  std::optional<WorkerId> worker;  // who hashes; nullopt: the coordinator hashes its copies
  Incarnation incarnation;         // process of `worker`
  std::vector<v1::CheckpointFile> files;
  bool copy = false;           // `worker` also sends copies of the undamaged files
  std::optional<WorkerId> to;  // receiver of the copies; nullopt: the coordinator
  // Set: a folder of an object store. With `copy`, `worker` writes the copies there. With `takes`,
  // `worker` fetches the files from there. Without `worker`, the coordinator looks at the objects
  // there instead of at its copies.
  std::optional<v1::StoredFolder> folder;
  bool takes = false;
  // The check is given up after this time. Hashing and sending large files takes long.
  absl::Duration limit = absl::Minutes(30);
  MonoTime until;  // set by the book
};

// Returns the incarnation of a connected worker; nullopt: the worker is not connected.
using ConnectedWorkers = std::function<std::optional<Incarnation>(const WorkerId&)>;

// ---- Checks to begin. `about` gives purpose, request, run, epoch and step of all checks. -------

// Returns one check for each holder that can be asked: the coordinator first, if it has copies,
// then each connected worker. The holder hashes all files of the checkpoint that it has.
std::vector<ShardCheck> ChecksOf(const v1::CheckpointManifest& manifest, const ShardCheck& about,
                                 const ConnectedWorkers& connected);
// Returns checks in which connected workers hash files and send copies of them. Each file is
// requested from its first connected holder without a known fault, which usually is the worker that
// wrote the file. A file without such a holder is left out.
std::vector<ShardCheck> CopyChecksOf(std::span<const v1::CheckpointFile> files,
                                     const ShardCheck& about, const ConnectedWorkers& connected);

// (step, holder, file name) of shards that were hashed and are whole. Holder "": the coordinator.
using VerifiedShards = std::set<std::tuple<uint64_t, std::string, std::string>>;

class ShardBook {
 public:
  // `first`: the number of the first check. It must differ from the numbers of an earlier process
  // of the coordinator, whose checks workers may still answer.
  explicit ShardBook(uint64_t first = 1) : next_check_(first) {}

  // ---- Checks under way -----------------------------------------------------------

  // Adds a check and returns its number.
  uint64_t Begin(ShardCheck check, MonoTime now);
  // Null: there is no such check. Valid until the book changes.
  const ShardCheck* Find(uint64_t id) const;
  // Removes and returns the check that a message of this worker answers; nullopt: there is none.
  std::optional<ShardCheck> TakeAnswered(const WorkerId& worker, const Incarnation& incarnation,
                                         const v1::WorkerMessage& message);
  // Removes and returns a check of the coordinator's copies; nullopt: there is none.
  std::optional<ShardCheck> TakeAnsweredByCopies(uint64_t id);
  // Removes and returns the check with this number; nullopt: there is none.
  std::optional<ShardCheck> Take(uint64_t id);
  void DropResumeChecks(const RunId& run);

  // Returns the numbers of the checks whose time is over.
  std::vector<uint64_t> Late(MonoTime now) const;
  // Returns the numbers of the checks in which this worker hashes, sends or receives files.
  std::vector<uint64_t> AskedOf(const WorkerId& worker) const;
  bool IsCheckingToResume(const RunId& run) const {
    return IsUnderWay(run, std::nullopt, ShardCheck::Purpose::kResume);
  }
  // Returns whether any check of the run is under way.
  bool IsInUse(const RunId& run) const;
  // Returns whether a check of kCopy is under way for the checkpoint of `step`; without `step`, for
  // any checkpoint of the run.
  bool IsCopying(const RunId& run, std::optional<uint64_t> step = std::nullopt) const {
    return IsUnderWay(run, step, ShardCheck::Purpose::kCopy);
  }
  // Returns whether a check of kStore is under way for the run.
  bool IsStoring(const RunId& run) const {
    return IsUnderWay(run, std::nullopt, ShardCheck::Purpose::kStore);
  }
  // Returns whether a check of kAudit is under way for the run.
  bool IsAuditing(const RunId& run) const {
    return IsUnderWay(run, std::nullopt, ShardCheck::Purpose::kAudit);
  }
  // Returns whether a check of kHook of the run is under way.
  bool IsGatheringForHook(const RunId& run) const {
    return IsUnderWay(run, std::nullopt, ShardCheck::Purpose::kHook);
  }
  // Returns whether a worker was asked to send the coordinator a file with this hash and size.
  // `from`: if set, only requests to this worker count.
  bool ExpectsCopy(const std::string& sha256, uint64_t bytes,
                   const std::optional<WorkerId>& from = std::nullopt) const;
  // Returns the checks in which a worker must send the coordinator a file with this hash. `from`:
  // as in ExpectsCopy. Valid until the book changes.
  std::vector<const ShardCheck*> ExpectingCopy(const std::string& sha256,
                                               const std::optional<WorkerId>& from) const;
  // Returns whether a check under way makes a worker write, or with `writes` false fetch, the
  // object at this address. `from`: as in ExpectsCopy.
  bool MovesObject(const RunId& run, const std::string& address, bool writes,
                   const std::optional<WorkerId>& from) const;
  // Returns the run and epoch of each check under way in which a worker sends files to another one.
  std::vector<std::pair<RunId, Epoch>> Transfers() const;
  // Returns the hashes of all files that workers must send the coordinator.
  std::vector<std::string> ExpectedCopies() const;
  // Returns when the next check is late; MonoTime::max(): never.
  MonoTime NextWake() const;

  // ---- `longhaul checkpoints --verify` --------------------------------------------

  // Begins to collect the shards that the checks of this request find whole.
  void BeginVerification(RequestId request);
  bool IsVerifying(RequestId request) const { return verifications_.contains(request); }
  // Records that a file of a check is whole. Only checks of kVerify count.
  void NoteVerified(const ShardCheck& check, const v1::CheckpointFile& file);
  // Ends the verification and returns the shards that are whole. nullopt: some checks of the
  // request are under way, or there is no such verification.
  std::optional<VerifiedShards> TakeVerified(RequestId request);

 private:
  bool IsUnderWay(const RunId& run, std::optional<uint64_t> step,
                  ShardCheck::Purpose purpose) const;

  std::map<uint64_t, ShardCheck> checks_;
  uint64_t next_check_;
  std::map<RequestId, VerifiedShards> verifications_;
};

}  // namespace longhaul::coordinator
