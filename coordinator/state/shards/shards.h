// Shards of committed checkpoints: has them hashed, sent to the coordinator or to other workers,
// and dropped. A run resumes from a checkpoint only when all of its shards have been hashed.
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

  // The component that starts checks of one purpose gets the end of each. `failure`: the reason why
  // it failed, a sentence; "": it succeeded.
  using Done = std::function<void(Run& run, const ShardCheck& check, const std::string& failure)>;
  void WhenDone(ShardCheck::Purpose purpose, Done done);

  // ---- Asking
  // Makes all holders that can be asked hash their files of this checkpoint.
  void Check(const Run& run, const v1::CheckpointManifest& manifest, ShardCheck::Purpose purpose,
             RequestId request = RequestId(0));
  // Makes workers that hold `files` send copies to the coordinator.
  void AskForCopies(const Run& run, uint64_t step, const std::vector<v1::CheckpointFile>& files,
                    ShardCheck::Purpose purpose, RequestId request = RequestId(0));
  // Makes `source` send files to the worker `to`, or to the coordinator.
  void StartTransfer(const Run& run, uint64_t step, ShardCheck::Purpose purpose,
                     const WorkerId& source, const std::optional<WorkerId>& to,
                     std::vector<v1::CheckpointFile> files);
  // Makes a connected holder of each shard send it directly to the worker that needs it. If the two
  // cannot reach each other, the holder sends the shard to the coordinator, once for all workers.
  void BeginMoves(const Run& run, uint64_t step, const std::vector<ShardMove>& moves);

  // ---- Answers
  void OnChecked(Worker& worker, const v1::WorkerMessage& message);
  void On(event::CopiesChecked& checked);
  void On(event::CopyStored& stored);
  // Repeats the worker's requests, because it has come back. Returns the runs and steps whose
  // shards it is sending.
  std::set<std::pair<RunId, uint64_t>> Repeat(const Worker& worker);
  // The session of the worker has ended.
  void Lose(const Worker& worker, const std::string& why);
  void CheckTimers();
  MonoTime NextWake() const { return book_.NextWake(); }

  // ---- Dropping
  // Drops the checkpoints after the step from which the run resumes.
  void DropAfter(Run& run, uint64_t step);
  // Drops `manifest`, which no longer belongs to the run.
  void Drop(const Run& run, const v1::CheckpointManifest& manifest);

  // Whether a shard that this worker was asked for has already arrived for its run.
  bool HasCopyFor(const WorkerId& from, const std::string& sha256) const;
  const ShardBook& book() const { return book_; }
  ShardBook& book() { return book_; }

  void OnMove(Run& run, const Transition& row) override;

 private:
  void Start(ShardCheck check);
  void Send(const Worker& worker, uint64_t id, const ShardCheck& check);
  void SendTransfer(uint64_t id, const ShardCheck& check, v1::WorkerCommand to_source);
  ConnectedWorkers Connected() const;
  void NoteProblem(Run& run, uint64_t step, v1::CheckpointFile& file, const Worker& worker,
                   const std::string& problem);
  void End(const ShardCheck& check, const std::string& failure);
  void GiveUp(uint64_t id, const std::string& why);
  double LineBetween(const Run& run, const Worker& source, const Worker& holder) const;
  // Whether the coordinator holds this content for a checkpoint of some run.
  bool IsNamedCopy(const std::string& sha256) const;

  Ledger& ledger_;
  const WorkerLinks& links_;
  ShardBook book_;
  std::array<Done, 3> done_;  // by purpose
};

}  // namespace longhaul::coordinator
