// Makes workers hash, send and delete shards, which are the files of committed checkpoints. A check
// is a request to hash or send shards of one checkpoint (books/shard_book.h). A run that is planned
// from a checkpoint waits until the checkpoint's shards are hashed.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/state/books/shard_book.h"
#include "coordinator/state/events.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"
#include "coordinator/state/workers/worker_links.h"

namespace longhaul::coordinator {

class Shards : public MoveListener {
 public:
  Shards(Ledger& ledger, const WorkerLinks& links);

  // Called at the end of each check. `failure`: a sentence about why the check failed; "": it
  // succeeded. A damaged shard is no failure; the damage is noted in the checkpoint's manifest.
  using Done = std::function<void(Run& run, const ShardCheck& check, const std::string& failure)>;
  // Sets the function that is called for checks of this purpose, in place of an earlier function.
  void WhenDone(ShardCheck::Purpose purpose, Done done);

  // ---- Asking
  // Makes the coordinator and connected workers hash their files of this checkpoint. `request`: the
  // call that waits for the result, only for kVerify.
  void Check(const Run& run, const v1::CheckpointManifest& manifest, ShardCheck::Purpose purpose,
             RequestId request = RequestId(0));
  // Makes connected workers that hold `files` send copies to the coordinator. Leaves out files that
  // no connected worker holds.
  void AskForCopies(const Run& run, uint64_t step, const std::vector<v1::CheckpointFile>& files,
                    ShardCheck::Purpose purpose, RequestId request = RequestId(0));
  // Makes `source`, which must be connected, send files to the worker `to`; nullopt: to the
  // coordinator.
  void StartTransfer(const Run& run, uint64_t step, ShardCheck::Purpose purpose,
                     const WorkerId& source, const std::optional<WorkerId>& to,
                     std::vector<v1::CheckpointFile> files);
  // Makes `source`, which must be connected, write copies of files into a folder of an object
  // store.
  void StartUpload(const Run& run, uint64_t step, const WorkerId& source,
                   const v1::StoredFolder& folder, std::vector<v1::CheckpointFile> files);
  // Returns the rate at which `source` can send a stage's state to `to` (null: to anybody), as far
  // as plans and measurements tell; 0: not known.
  double MoveBitsPerSecond(const Run& run, const Worker& source, const Worker* to) const;
  // Begins each move: a connected holder sends the shard to the worker that needs the shard. If the
  // two cannot reach each other, the holder sends the shard to the coordinator, once for all
  // workers. Where no holder is connected, the worker fetches the shard from an object store.
  void BeginMoves(const Run& run, uint64_t step, const std::vector<ShardMove>& moves);
  // As BeginMoves, for an audit: never from an object store, and without an event. `by_way`: all
  // files go by way of the coordinator.
  void BeginAuditMoves(const Run& run, uint64_t step, const std::vector<ShardMove>& moves,
                       bool by_way);

  // ---- Answers
  void OnChecked(Worker& worker, const v1::WorkerMessage& message);
  void On(event::CopiesChecked& checked);
  void On(event::CopyStored& stored);
  // Sends a worker that has come back its unanswered requests again. Returns the checkpoints (run
  // and step) of which this worker sends or receives files.
  std::set<std::pair<RunId, uint64_t>> Repeat(const Worker& worker);
  // Gives up the worker's checks, because its session has ended. `why`: for people.
  void Lose(const Worker& worker, const std::string& why);
  // Gives up checks that were not answered in time. Call this in every tick.
  void CheckTimers();
  MonoTime NextWake() const { return book_.NextWake(); }

  // ---- Dropping
  // Drops the run's checkpoints after `step`. The run resumes from `step`.
  void DropAfter(Run& run, uint64_t step);
  // Makes the coordinator and connected workers delete the files of a checkpoint. `manifest` must
  // no longer be in the run's record.
  void Drop(const Run& run, const v1::CheckpointManifest& manifest);

  // Returns whether a shard with this hash has arrived at the coordinator, for a check under way in
  // which worker `from` must send the shard.
  bool HasCopyFor(const WorkerId& from, const std::string& sha256) const;
  const ShardBook& book() const { return book_; }
  ShardBook& book() { return book_; }

  void OnMove(Run& run, const Transition& row) override;

 private:
  void Start(ShardCheck check);
  // Starts `check`, which says its purpose, of files that `worker` writes into `folder` or takes
  // from there.
  void StartWithFolder(const Run& run, uint64_t step, const WorkerId& worker,
                       const v1::StoredFolder& folder, std::vector<v1::CheckpointFile> files,
                       ShardCheck check);
  void Send(const Worker& worker, uint64_t id, const ShardCheck& check);
  void SendTransfer(uint64_t id, const ShardCheck& check, v1::WorkerCommand to_source);
  void StartFetch(const Run& run, uint64_t step, const WorkerId& worker,
                  const v1::StoredFolder& folder, std::vector<v1::CheckpointFile> files);
  // Notes what a worker says of a file that it was to fetch from an object store. Returns why it
  // has no such file though the folder may have; "": it has, or the folder has none.
  std::string NoteTaken(Run& run, const ShardCheck& check, const Worker& worker,
                        const v1::ShardState& said, v1::CheckpointFile& file);
  void DropFromFolder(const Run& run, const v1::CheckpointManifest& manifest);
  ConnectedWorkers Connected() const;
  // `holder`: an id as in v1::ShardHolder; `label` names it for people.
  void NoteProblem(Run& run, uint64_t step, v1::CheckpointFile& file, const std::string& holder,
                   const std::string& label, const std::string& problem);
  void End(const ShardCheck& check, const std::string& failure);
  void GiveUp(uint64_t id, const std::string& why);
  double LineBetween(const Run& run, const Worker& source, const Worker& holder) const;
  // Returns whether a checkpoint of some run names the coordinator's copy of this content.
  bool IsNamedCopy(const std::string& sha256) const;

  Ledger& ledger_;
  const WorkerLinks& links_;
  ShardBook book_;
  std::array<Done, 6> done_;  // by purpose
};

}  // namespace longhaul::coordinator
