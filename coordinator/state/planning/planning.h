// Completes unfinished plans (drafts). Workers measure layers and links, shards (files) of the
// checkpoint are checked and moved, the plan is computed, and the run adopts the plan. A job is a
// `longhaul plan` request with its draft. The reply to the request is the plan or an error.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/state/events.h"
#include "coordinator/state/ledger/computations.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"
#include "coordinator/state/life/failures.h"
#include "coordinator/state/planning/draft.h"
#include "coordinator/state/planning/probing.h"
#include "coordinator/state/shards/shards.h"
#include "coordinator/state/workers/orders.h"
#include "coordinator/state/workers/worker_links.h"
#include "planner/planner.h"

namespace longhaul::coordinator {

class Planning : public MoveListener {
 public:
  Planning(Ledger& ledger, Moves& moves, Failures& failures, WorkerLinks& links, Orders& orders,
           Shards& shards, Computations& computations)
      : ledger_(ledger),
        moves_(moves),
        failures_(failures),
        links_(links),
        orders_(orders),
        shards_(shards),
        computations_(computations),
        probing_(ledger, links) {}

  // ---- Drafts
  // Makes a draft with these candidates, and reserves the candidates for `id`.
  Draft NewDraft(const RunId& id, Epoch epoch, const RunSpec& spec, std::vector<v1::DataFile> files,
                 std::string link_secret, const Candidates& candidates);
  // Adds the draft of a run that is about to move to the state planning.
  void Add(Draft draft);
  // Begins a job. Answers `request` when the draft has ended.
  void BeginJob(RequestId request, Draft draft);
  // Null: neither a run nor a job of this id is being planned. Valid until the draft ends.
  Draft* Find(const RunId& id);
  const Draft* Find(const RunId& id) const { return const_cast<Planning*>(this)->Find(id); }
  bool IsJob(const RunId& id) const { return jobs_.contains(id); }
  // Calls `visit` for each draft, jobs first. `visit` must not end a draft.
  void EachDraft(const std::function<void(const Draft&)>& visit) const;

  // ---- Facts
  void On(event::DataPrepared& prepared);
  void On(event::PlanComputed& computed);
  void OnMessage(Worker& worker, Draft& draft, const v1::WorkerMessage& message);
  // Call this when a worker of the draft has a new session. Repeats the requests that the worker
  // may have missed.
  void Attach(Worker& worker, Draft& draft);
  // As Attach, for all jobs in which the worker has a part. Returns whether `said`, the id on which
  // the worker says that it works, is one of these jobs.
  bool AttachToJobs(Worker& worker, const RunId& said);
  // Call this when the worker has a new process or address. Drops the plan of the draft that
  // reserves the worker, and measures all links of this draft again.
  void ForgetLinksOf(const Worker& worker);
  // Call this when a worker of the draft has lost its session. The run goes back to the queue, or
  // the job fails. `label`: Ledger::Label of the worker before the loss. `why`: for people.
  void Lose(const RunId& id, const std::string& label, const std::string& why);
  // Returns a sentence about what the run risks if it trains on the draft's workers; "": nothing.
  std::string RiskOf(const Draft& draft) const;
  // Gives up the draft that reserves a worker which is leaving. Does nothing for other workers.
  void OnLeaving(Worker& worker);
  // Call this when a check of shards for the run has ended. "" in `failure`: the check succeeded,
  // and planning continues. Else `failure` says why the check failed, and planning is interrupted.
  void OnShards(const RunId& id, const std::string& failure);

  // ---- Time
  // CheckProbes, CheckTimers and Advance are called in every tick. CheckProbes gives up late
  // probes.
  void CheckProbes();
  // Drops candidates whose layer times are late, or ends the draft if the plan needs them.
  void CheckTimers();
  // Continues drafts that wait for workers that try to reach each other.
  void Advance();
  MonoTime NextWake() const;

  void OnMove(Run& run, const Transition& row) override;
  void Act(Run& run, Action action) override;
  void CheckInvariants(const Run& run) const;

 private:
  struct Job {
    RequestId request;
    Draft draft;
  };

  void Begin(Draft& draft);
  // Reuses layer times of a resumed run's workers that timed the same layers a short time ago.
  void ReuseLayerTimes(Draft& draft);
  // Logs how long measuring took, once all times have arrived: users see why planning was slow.
  void NoteLayerTimes(const Run& run, const Draft& draft, const Worker& last);
  // Drops a candidate that a plan does not need. False: the plan needs it, or links are already
  // being measured.
  bool Drop(Draft& draft, Worker& worker, const std::string& why);
  void CheckTimer(const RunId& id);
  bool IsTryingReach(const Draft& draft) const;
  bool IsComplete(const Draft& draft) const;
  PlanRequest RequestOf(const Draft& draft) const;
  void Advance(const RunId& id);
  // Drops the plan, computed or being computed, because its inputs have changed.
  void DropPlan(Draft& draft);
  void Fail(const RunId& id, const std::string& sentence);
  void Interrupt(const RunId& id, const std::string& cause);
  void EndJob(const RunId& id, StatusOr<v1::PlanReply> reply);

  // adopt.cc: the run and its checkpoint.
  // True: the draft's checkpoint is whole. Else an older one is being checked, or the draft has
  // ended.
  bool SettleOnCheckpoint(Run& run, Draft& draft);
  // True: every stage of the plan has its shards on its disk or at the coordinator. Else begins to
  // send them.
  bool ShardsAreInPlace(const Run& run, const Plan& plan);
  void Adopt(Run& run, const Draft& draft, Plan plan);
  // SettleGroup, SettleReplicas and SettleCodecs store the plan's choices for keys that the run
  // file left open.
  void SettleGroup(Run& run, const Group& chosen);
  void SettleReplicas(Run& run, uint32_t chosen);
  void SettleCodecs(Run& run, const Assignment& assignment);

  Ledger& ledger_;
  Moves& moves_;
  Failures& failures_;
  WorkerLinks& links_;
  Orders& orders_;
  Shards& shards_;
  Computations& computations_;
  Probing probing_;
  std::map<RunId, Job> jobs_;      // by the request's id
  std::map<RunId, Draft> drafts_;  // of runs in the state planning
};

}  // namespace longhaul::coordinator
