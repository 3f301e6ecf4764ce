// Simulates a worker as the coordinator sees it: its session with the coordinator, its agent, which
// handles commands, and one stage of a run at a time. Links to neighbors are simulated by the
// shared World (world.h). Behaves like worker/agent and worker/epoch.
//
// Words: an epoch is one attempt to train a run. A cell is one stage of one replica. An edge is a
// link between two cells. An incarnation is one process of a worker.
//
// Threads: one, which runs the timeline. All times are virtual.
#pragma once

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>

#include "coordinator/state/state.h"
#include "tests/sim/coordinator/connection.h"
#include "tests/sim/coordinator/world.h"
#include "worker/agent/desk.h"
#include "worker/agent/dial_order.h"
#include "worker/agent/obedience.h"
#include "worker/agent/report_outbox.h"

namespace longhaul::coordinator::sim {

class SimWorker {
 public:
  // Opens a stream to coordinator number `at`; null: it does not answer. `end`: the worker's
  // callbacks for the stream.
  using Dial = std::function<std::shared_ptr<Connection>(size_t worker, size_t at,
                                                         Connection::WorkerEnd end)>;
  // `index`: the worker's number, from 0. `world` must outlive this object. `coordinators`: how
  // many it knows. `twin`: this is a second process with the same identity, because somebody copied
  // the worker's state folder to another machine; it has no devices.
  SimWorker(size_t index, World* world, Dial dial, size_t coordinators, bool twin = false);

  // Starts the process as a new incarnation. Does nothing if it runs.
  void Start();
  // Ends the process without warning. `silent`: its machine loses power, so nobody notices that
  // its connections are gone, and its disk keeps only synced files.
  void Crash(bool silent);
  // Crashes the worker, and loses its machine and disk for ever. The next Start is on a new
  // machine, with a new worker id and the same name.
  void LoseMachine();
  // Tells the process to end, as SIGTERM does. It says that it is leaving, and ends when the
  // coordinator lets it go, or after `limit`. Ends at once without a coordinator.
  // It starts again `away` after it has ended.
  void Leave(absl::Duration limit, absl::Duration away);
  // Pauses the process for `length`, as SIGSTOP does. Messages wait meanwhile.
  void Freeze(absl::Duration length);
  // Break or delay the stream to the coordinator, as Cut, CutOneWay and Delay of Connection do. Do
  // nothing if there is no stream.
  void CutSession(bool silent);
  void CutSessionOneWay(bool up);
  void DelaySession(absl::Duration delay);
  // The machine gets another address. The session breaks; process and open links live on.
  void Move();

  bool running() const { return running_; }
  // True if the worker's stage hangs: it makes no progress until its process ends.
  bool hung() const { return run_ && run_->hung; }
  // The worker id of the newest process: "id-w1".
  const std::string& id() const { return id_; }
  // True if the coordinator has accepted the session.
  bool connected() const { return connection_ != nullptr && welcomed_; }
  // True if the worker has no stage, measures nothing and has no command waiting.
  bool idle() const { return !run_ && !next_ && !measuring_ && !IsProbing(); }
  // Returns what the worker is doing, for error messages.
  std::string Describe() const;

 private:
  // One cell of one epoch, which the worker runs.
  struct StageRun {
    EpochKey key;
    Assignment assignment;
    CellId cell;
    uint64_t start_step = 0, steps = 0, checkpoint_every = 0;
    std::vector<v1::CheckpointFile> resume_files;
    uint64_t number = 0;  // counts the StageRuns of this object
    bool in_epoch = false, ready = false, started = false, stop_requested = false;
    bool finished = false, failed = false, cancelled = false;
    bool hung = false, deaf = false;  // deaf: a hung stage that also ignores cancellation
    uint64_t step = 0;                // newest step that this cell has done
    Setting setting;
    std::optional<v1::Retune> retune;         // new setting, to apply at the next step
    std::optional<v1::Retuned> retuned;       // report on the newest setting that was applied
    std::vector<uint64_t> sample_requests;    // to answer at the next step
    MonoTime writer_free;                     // when the checkpoint writer has written everything
    int writes = 0;                           // checkpoint snapshots not yet written
    std::map<EdgeId, MonoTime> silent_since;  // since when a neighbor has been silent
    std::set<EdgeId> suspects;                // edges that were reported as suspect
    std::set<EdgeId> lost;                    // edges that were reported as lost

    // Returns the edges of this cell: to the stages before and after it, and to its replicas.
    std::vector<const Edge*> edges() const {
      std::vector<const Edge*> all = assignment.EdgesOf(cell, EdgeKind::kActivations);
      std::ranges::move(assignment.EdgesOf(cell, EdgeKind::kReplicas), std::back_inserter(all));
      return all;
    }
    // True if this cell decides after which step the run stops.
    bool decides() const { return is_first() && cell.replica == 0; }
    bool is_first() const { return assignment.Find(cell)->roles.embedding; }
    bool is_last() const { return assignment.Find(cell)->roles.head; }
  };

  // The newest command to measure a link. `answer` is set once the measurement has ended.
  struct Probe {
    v1::WorkerCommand command;
    size_t peer = 0;       // number of the worker at the other end
    absl::Duration takes;  // how much longer the link must work
    MonoTime until;        // the measurement fails at this time
    bool cancelled = false;
    std::optional<v1::WorkerMessage> answer;
  };

  // Run `action` later, unless the process has died by then. AfterInRun also drops `action` if the
  // present StageRun has ended.
  void After(absl::Duration delay, std::function<void()> action);
  void AfterInRun(absl::Duration delay, std::function<void()> action);

  void EndAsLeft();

  // Session.
  void TryDial();
  void DialAfter(const worker::SessionEnding& ending);
  void SessionEnded();
  // Ends the session on this side.
  void HangUp();
  void Heartbeat();
  void Flush();
  void Handle(const v1::WorkerCommand& command);
  // Returns whether the command is obeyed. A worker of one coordinator obeys all.
  bool Obeys(const v1::WorkerCommand& command);
  void Refused(const std::string& reason);
  v1::Hello Hello() const;
  v1::Leaving Leaving() const;

  // Agent.
  worker::Desk DeskNow() const;
  // Measure, ProbeLink and Assign.
  void HandleWork(const v1::WorkerCommand& command);
  void HandleTryReach(const v1::TryReach& ask);
  void HandleCheckShards(const v1::WorkerCommand& command);
  void HandleFetch(const v1::WorkerCommand& command);
  void GiveUpTakesBefore(const v1::WorkerCommand& command);
  void TakeNext();
  void Measured(const v1::WorkerCommand& command);
  void Cancel();

  // Measuring links before a run (sim_probe.cc).
  void BeginProbe(const v1::WorkerCommand& command);
  void PollProbe(uint64_t number);
  bool IsProbing() const { return probe_ && !probe_->answer; }
  void CancelProbe();
  void CheckProbe(const v1::WorkerCommand& command);
  bool WasInTroubleLately(size_t worker) const;
  void CheckRates(const EpochKey& key, const Assignment& assignment);

  // Stage run.
  void BeginRun(const v1::WorkerCommand& command);
  void Readdress(const v1::Readdress& moved);
  void Prepared();
  void WaitForLinks(MonoTime until);
  void SayReady();
  void HandleStart(const v1::Start& start);
  void HandleRetune(const v1::Retune& retune);
  void RetuneIfDue();
  void CheckSettings();
  void Work();
  bool NeighboursAreThere();
  bool MayStep() const;
  void OneStep();
  bool FailsForEver() const;
  void SubmitCheckpoint(bool interim);
  void SyncShard(const EpochKey& key, const ShardName& name, bool of_replicas, bool interim);
  void Finish();
  void Fail(const std::string& text, std::optional<EdgeId> lost = std::nullopt);
  void EndRun();
  void LeaveEpoch(bool goodbye);
  void Say(const EpochKey& key, v1::WorkerMessage message);
  void SayLink(EdgeId edge, std::string_view state, absl::Duration silence);
  Disk& disk() { return world_->disks[id_]; }
  EpochTruth& truth() { return world_->epochs[run_->key]; }
  const EpochTruth& truth() const { return world_->epochs[run_->key]; }

  const size_t index_;
  World* const world_;
  const Dial dial_;
  const bool twin_;
  std::string id_;
  bool running_ = false;
  std::optional<MonoTime> leaves_at_;  // set: it is leaving
  absl::Duration away_;                // how long it then stays away
  uint64_t incarnation_ = 0;           // also tells callbacks of earlier processes apart

  std::shared_ptr<Connection> connection_;  // null: no stream
  bool welcomed_ = false;
  uint64_t dials_ = 0;  // tells callbacks of earlier connections apart
  const size_t coordinators_;
  size_t at_ = 0;  // the coordinator that it dials
  MonoTime heard_;
  worker::DialOrder order_{1};
  worker::Obeyed obeyed_;  // the leader that this process obeyed last
  // The real worker's queue of messages, which keeps them until they are written to a stream.
  worker::ReportOutbox outbox_;
  bool writing_ = false;  // the first message of outbox_ is sent, but not yet confirmed as written

  std::optional<v1::WorkerCommand> next_;  // command to begin once the present work has ended
  std::vector<v1::Readdress> next_moves_;  // new addresses of neighbors, for next_
  std::optional<EpochKey> measuring_;      // the run for which times of layers are measured
  std::optional<Probe> probe_;
  std::optional<StageRun> run_;
  uint64_t runs_begun_ = 0;
};

}  // namespace longhaul::coordinator::sim
