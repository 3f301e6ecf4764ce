// A worker daemon as the coordinator sees one: its session, its agent, one stage run at a time; and
// behind that the data path, of which the world knows the truth. Follows worker/agent and
// worker/epoch.
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
#include "worker/agent/report_outbox.h"

namespace longhaul::coordinator::sim {

class SimWorker {
 public:
  // `dial` gives a connection, or null when nobody answers.
  using Dial = std::function<std::shared_ptr<Connection>(size_t worker, Connection::WorkerEnd end)>;
  // `twin`: a copy of that worker's state folder, on a machine that has nothing to compute on.
  SimWorker(size_t index, World* world, Dial dial, bool twin = false);

  // The process begins, as a new incarnation.
  void Start();
  // kill -9, or the machine loses power: then nobody hears that its connections are gone, and its
  // disk has only what was synced.
  void Crash(bool silent);
  // The machine and its disk are gone. The next start is on another one, as another worker of the
  // same name.
  void LoseMachine();
  // SIGSTOP and SIGCONT: whatever comes waits.
  void Freeze(absl::Duration length);
  void CutSession(bool silent);
  void CutSessionOneWay(bool up);
  void DelaySession(absl::Duration delay);
  // Its machine gets another address; process and links stay.
  void Move();

  bool running() const { return running_; }
  // Its stage makes no progress, and will not.
  bool hung() const { return run_ && run_->hung; }
  const std::string& id() const { return id_; }
  bool connected() const { return connection_ != nullptr && welcomed_; }
  bool idle() const { return !run_ && !next_ && !measuring_ && !IsProbing(); }
  std::string Describe() const;

 private:
  struct StageRun {
    EpochKey key;
    Assignment assignment;
    CellId cell;
    uint64_t start_step = 0, steps = 0, checkpoint_every = 0;
    std::vector<v1::CheckpointFile> resume_files;
    uint64_t number = 0;  // of this process's runs
    bool in_epoch = false, ready = false, started = false, stop_requested = false;
    bool finished = false, failed = false, cancelled = false;
    bool hung = false, deaf = false;  // deaf: hung where it does not hear that it is cancelled
    uint64_t step = 0;
    Setting setting;
    std::optional<v1::Retune> retune;    // waits for a step
    std::optional<v1::Retuned> retuned;  // the newest that was taken
    MonoTime writer_free;
    int writes = 0;                           // snapshots that wait or are being written
    std::map<EdgeId, MonoTime> silent_since;  // by the link to the neighbour
    std::set<EdgeId> suspects;
    std::set<EdgeId> lost;  // whose connection closed

    // The ways to the neighbours, of which there are up to two.
    std::vector<const Edge*> edges() const {
      std::vector<const Edge*> all = assignment.EdgesOf(cell, EdgeKind::kActivations);
      std::ranges::move(assignment.EdgesOf(cell, EdgeKind::kReplicas), std::back_inserter(all));
      return all;
    }
    // Which decides for all replicas when a run stops.
    bool decides() const { return is_first() && cell.replica == 0; }
    bool is_first() const { return assignment.Find(cell)->roles.embedding; }
    bool is_last() const { return assignment.Find(cell)->roles.head; }
  };

  // The newest ProbeLink and its answer, once there is one.
  struct Probe {
    v1::WorkerCommand command;
    size_t peer = 0;
    absl::Duration takes;
    MonoTime until;
    bool cancelled = false;
    std::optional<v1::WorkerMessage> answer;
  };

  // Runs `action` later, unless the process has died or the run of now has ended.
  void After(absl::Duration delay, std::function<void()> action);
  void AfterInRun(absl::Duration delay, std::function<void()> action);

  // Session.
  void TryDial();
  void SessionEnded();
  void Heartbeat();
  void Flush();
  void Handle(const v1::WorkerCommand& command);
  void Refused(const std::string& reason);
  v1::Hello Hello() const;

  // Agent.
  bool IsCurrent(const v1::WorkerCommand& command) const;
  void HandleAssign(const v1::WorkerCommand& command);
  bool IsNext(const v1::WorkerCommand& command) const;
  void HandleReaddress(const v1::WorkerCommand& command);
  void HandleTryReach(const v1::TryReach& ask);
  void HandleCheckShards(const v1::WorkerCommand& command);
  void GiveUpTakesBefore(const v1::WorkerCommand& command);
  void TakeNext();
  void Measured(const v1::WorkerCommand& command);
  void Cancel();

  // Links measured before a run: sim_probe.cc.
  void BeginProbe(const v1::WorkerCommand& command);
  void PollProbe(uint64_t number);
  bool IsProbing() const { return probe_ && !probe_->answer; }
  bool IsProbed(const v1::WorkerCommand& command) const;
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
  std::string id_;  // of the newest process
  bool running_ = false;
  uint64_t incarnation_ = 0;  // also: which process a callback belongs to

  std::shared_ptr<Connection> connection_;
  bool welcomed_ = false;
  uint64_t dials_ = 0;  // which connection a callback belongs to
  absl::Duration back_off_;
  worker::ReportOutbox outbox_;  // the daemon's
  bool writing_ = false;         // what waits first is sent; nobody knows yet that it is

  std::optional<v1::WorkerCommand> next_;
  std::vector<v1::Readdress> next_moves_;
  std::optional<EpochKey> measuring_;
  std::optional<Probe> probe_;
  std::optional<StageRun> run_;
  uint64_t runs_begun_ = 0;
};

}  // namespace longhaul::coordinator::sim
