#include "tests/sim/coordinator/two_leaders.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "run/plan/proto/plan_proto.h"
#include "tests/sim/coordinator/notes.h"
#include "tests/sim/coordinator/plain_worker.h"
#include "tests/sim/coordinator/random.h"
#include "tests/support/state_harness.h"

namespace longhaul::coordinator::sim {
namespace {

constexpr absl::Duration kTurnLength = absl::Milliseconds(200);
constexpr absl::Duration kTogether = absl::Seconds(30);
// For the pauses before attempts, of a minute each, and for workers that have to be missed.
constexpr absl::Duration kTrainsAgainWithin = absl::Minutes(12);
constexpr size_t kWorkers = 3;
const std::string kRun = "tiny-1";

RunSpec Spec() {
  RunSpec spec = SmallSpec("tiny", 2);
  spec.train.steps = 1'000'000;
  spec.checkpoint.every = 0;
  spec.links.measure = false;
  spec.recovery.attempts = 1000;
  return spec;
}

double LossOf(uint64_t stamp, uint64_t step) {
  return 1 + static_cast<double>((stamp ^ (step * 0x9e3779b97f4a7c15)) % 1'000'003) * 1e-6;
}

// A coordinator's process.
struct Leader {
  Leader(const std::vector<RunRecord>& stored, const Lead& as)
      : lead(as), coordinator(stored, OptionsOf(as)) {}
  static StateOptions OptionsOf(const Lead& as) {
    StateOptions options;
    options.lead = as;
    options.reach_secret = as.tenure.value();
    return options;
  }

  Lead lead;
  Coordinator coordinator;
  std::map<SessionId, size_t> workers;  // of open sessions
  std::map<SessionId, uint64_t> named;  // the epoch of the run in each worker's hello
  uint64_t newest_named = 0;            // of workers that were connected before this turn
};

// A worker's stream to a leader. What is under way arrives in order, or is lost with the stream.
struct Stream {
  size_t leader = 0;
  SessionId session;
  std::deque<v1::WorkerMessage> up;
  std::deque<v1::WorkerCommand> down;
  bool nothing_comes_down = false;
  bool welcomed = false;
};

struct Member {
  PlainWorker worker;
  std::optional<Stream> stream;
  MonoTime dial_at = {};
};

class TwoLeaders {
 public:
  TwoLeaders(uint64_t seed, bool print) : random_(seed), notes_(print) {}

  SimulationResult Run() {
    for (size_t i = 0; i < kWorkers; ++i) {
      workers_.push_back({.worker = PlainWorker(fmt::format("w{}", i + 1), &random_, &notes_)});
    }
    Begin({}, {.term = 1, .tenure = TenureOf(0)});
    for (Member& one : workers_) Dial(one, 0);
    leaders_[0]->coordinator.Tick(SubmitOf(Spec(), kRun));
    // Records of the first, from which the second one may begin.
    std::vector<std::vector<RunRecord>> images;
    const MonoTime parted = notes_.now + random_.Between(absl::Seconds(2), absl::Seconds(20));
    while (notes_.now < parted && Turn()) {
      if (random_.Chance(0.1)) Disturb();
      if (random_.Chance(0.3)) images.push_back(leaders_[0]->coordinator.Stored());
    }
    images.push_back(leaders_[0]->coordinator.Stored());
    // Late images more often than early ones.
    const size_t back = random_.Chance(0.5) ? 0 : random_.Below(images.size());
    const uint64_t term = random_.Chance(0.4) ? 1 : 2;
    Begin(images[images.size() - 1 - back], {.term = term, .tenure = TenureOf(1)});
    const MonoTime healed = notes_.now + random_.Between(absl::Seconds(5), kTogether);
    while (notes_.now < healed && Turn()) {
      if (random_.Chance(0.15)) Disturb();
    }
    Heal();
    notes_.result.virtual_seconds = absl::ToDoubleSeconds(notes_.elapsed());
    return notes_.result;
  }

 private:
  Tenure TenureOf(size_t process) const { return Tenure(fmt::format("{:<16}", process)); }

  void Begin(const std::vector<RunRecord>& stored, const Lead& lead) {
    auto& leader = leaders_.emplace_back(std::make_unique<Leader>(stored, lead));
    leader->coordinator.now = leader->coordinator.start;
    began_.push_back(notes_.now);
    notes_.Note("leader {} begins with term {}", leaders_.size() - 1, lead.term);
  }
  // Each coordinator's clock begins when it begins.
  void SetClock(size_t i) {
    Coordinator& c = leaders_[i]->coordinator;
    c.now = c.start + (notes_.now - began_[i]);
  }

  // ---- Time. False: there is a violation.
  bool Turn() {
    notes_.now = notes_.now + kTurnLength;
    for (size_t i = 0; i < leaders_.size(); ++i) {
      if (leaders_[i] == nullptr) continue;
      SetClock(i);
      leaders_[i]->newest_named = NewestNamed(*leaders_[i]);
      leaders_[i]->coordinator.Tick();
      TakeOut(i);
    }
    for (Member& one : workers_) {
      one.worker.GoOn();
      if (one.stream) Talk(one);
      if (!one.stream && notes_.now >= one.dial_at) Dial(one, random_.Below(leaders_.size()));
    }
    if (turn_++ % 3 == 0) Train();
    return notes_.result.violation.empty();
  }

  void Disturb() {
    // Often one with work of which the next leader does not hear.
    const auto busy =
        std::ranges::find_if(workers_, [](const Member& m) { return m.worker.HasNext(); });
    const bool breaks = busy != workers_.end() && busy->stream && random_.Chance(0.7);
    if (breaks) return Hangup(*busy);
    Member& one = workers_[random_.Below(workers_.size())];
    if (random_.Chance(0.25)) {
      notes_.Note("{} restarts", one.worker.name());
      Hangup(one);
      one.worker.Restart();
    } else if (one.stream && random_.Chance(0.4)) {
      notes_.Note("nothing comes down to {} any more", one.worker.name());
      one.stream->nothing_comes_down = true;
    } else if (one.stream) {
      notes_.Note("{}'s session breaks", one.worker.name());
      Hangup(one);
    }
  }

  // One leader is left, restarts with a newer term, and all workers come to it.
  void Heal() {
    if (!notes_.result.violation.empty()) return;
    const size_t left = random_.Below(2);
    const std::vector<RunRecord> stored = leaders_[left]->coordinator.Stored();
    uint64_t term = 0;
    for (const auto& leader : leaders_) term = std::max(term, leader->lead.term);
    for (Member& one : workers_) Hangup(one);
    leaders_[0].reset();
    leaders_[1].reset();
    Begin(stored, {.term = term + 1, .tenure = TenureOf(2)});
    const MonoTime until = notes_.now + kTrainsAgainWithin;
    while (trained_after_ == 0) {
      if (!Turn()) return;
      if (notes_.now < until) continue;
      const v1::RunStatus status = *leaders_[2]->coordinator.views().RunOf(kRun);
      return notes_.Violate("the run does not train again within {}: it is {} ({})",
                            absl::FormatDuration(kTrainsAgainWithin), status.state(),
                            status.reason());
    }
  }

  // ---- Leaders
  static uint64_t NewestNamed(const Leader& leader) {
    uint64_t newest = 0;
    for (const auto& [session, epoch] : leader.named) newest = std::max(newest, epoch);
    return newest;
  }

  // One event a tick, so that it is clear what the leader knew.
  void Tell(size_t i, Event event) {
    SetClock(i);
    leaders_[i]->coordinator.TickAll([&] {
      std::vector<Event> events;
      events.push_back(std::move(event));
      return events;
    }());
    TakeOut(i);
    CheckRecord(i);
  }

  void TakeOut(size_t i) {
    Leader& leader = *leaders_[i];
    std::vector<Command> commands = std::exchange(leader.coordinator.commands, {});
    for (Command& command : commands) {
      if (const auto* prepare = std::get_if<command::PrepareData>(&command)) {
        Tell(i, event::DataPrepared{prepare->run, SmallData()});
        continue;
      }
      auto* to = std::get_if<command::ToWorker>(&command);
      const auto* close = std::get_if<command::CloseSession>(&command);
      const SessionId session = to != nullptr      ? to->session
                                : close != nullptr ? close->session
                                                   : SessionId();
      const auto found = leader.workers.find(session);
      if (found == leader.workers.end()) continue;
      Member& one = workers_[found->second];
      if (close != nullptr) {
        leader.workers.erase(session);
        leader.named.erase(session);
        if (one.stream && one.stream->session == session && one.stream->leader == i) {
          one.stream.reset();
          one.dial_at = notes_.now + absl::Seconds(1);
        }
        continue;
      }
      if (to->message.has_assign()) CheckAssign(leader, to->message);
      if (!one.stream || one.stream->session != session || one.stream->leader != i) continue;
      to->message.set_term(leader.lead.term);
      to->message.set_tenure(leader.lead.tenure.value());
      one.stream->down.push_back(std::move(to->message));
    }
  }

  void CheckAssign(Leader& leader, const v1::WorkerCommand& command) {
    const Assignment assignment = longhaul::FromProto(command.assign().assignment());
    // I3: no two assignments with different cells or start steps have one stamp.
    std::string what = fmt::format("from step {}", assignment.start_step);
    for (const Cell& cell : assignment.cells) {
      what += fmt::format(", {} on {}", ToString(cell.id), cell.incarnation.value());
    }
    const auto [known, is_new] = assignments_.emplace(command.stamp(), what);
    const auto [stamp, is_first] = epochs_.emplace(assignment.epoch.value(), command.stamp());
    if (!is_first && stamp->second != command.stamp()) notes_.Saw("two assignments of an epoch");
    if (assignment.epoch.value() > newest_epoch_ + 1) notes_.Saw("an epoch is left out");
    newest_epoch_ = std::max(newest_epoch_, assignment.epoch.value());
    if (!is_new && known->second != what) {
      notes_.Violate("I3: the stamp {:016x} names two assignments: {}; and {}", command.stamp(),
                     known->second, what);
    }
    // I1: two assignments share no secret.
    for (const auto& [edge, secret] : command.assign().edge_secrets()) {
      const auto [owner, fresh] = secrets_.emplace(secret, assignment.hash);
      if (!fresh && owner->second != assignment.hash) {
        notes_.Violate("I1: epochs {} of two assignments share the secret of edge {}",
                       assignment.epoch.value(), edge);
      }
    }
    // I4: a new epoch is above all that workers named. A leader may repeat what it stored.
    if (is_new && assignment.epoch.value() <= leader.newest_named) {
      notes_.Violate("I4: epoch {} begins, and a worker had named epoch {}",
                     assignment.epoch.value(), leader.newest_named);
    }
  }

  // I2: only reports of the run's assignment change the run.
  void CheckRecord(size_t i) {
    Coordinator& c = leaders_[i]->coordinator;
    const auto found = c.records.find(kRun);
    if (found == c.records.end() || !found->second.plan) return;
    const RunRecord& record = found->second;
    for (const Write& write : c.last.writes) {
      const auto* done = std::get_if<write::StepDone>(&write);
      if (done == nullptr) continue;
      const uint64_t stamp = record.plan->assignment.stamp().value();
      if (done->step.loss() != LossOf(stamp, done->step.step())) {
        notes_.Violate("I2: leader {} took step {} of another assignment than its own", i,
                       done->step.step());
      }
      if (i == 2) ++trained_after_;
    }
  }

  // ---- Workers
  void Dial(Member& one, size_t i) {
    if (leaders_[i] == nullptr) i = leaders_.size() - 1;
    Leader& leader = *leaders_[i];
    one.worker.outbox().BeginSession();
    one.stream = Stream{.leader = i, .session = SessionId(++sessions_)};
    const v1::Hello hello = one.worker.Hello();
    notes_.Note("{} says hello to leader {}, at epoch {} ({:016x})", one.worker.name(), i,
                hello.epoch(), hello.stamp());
    // Its term is above that of the leader: that one refuses it (coordinator/lead/worker_word.h).
    if (one.worker.obeyed().term > leader.lead.term) return Hangup(one);
    leader.workers[one.stream->session] = static_cast<size_t>(&one - workers_.data());
    leader.coordinator.sessions[one.worker.name()] = one.stream->session;
    Tell(i, event::WorkerJoined{one.stream->session, hello});
    if (one.worker.stage() && one.stream) leader.named[one.stream->session] = hello.epoch();
  }

  void Hangup(Member& one) {
    one.dial_at = notes_.now + random_.Between(absl::ZeroDuration(), absl::Seconds(3));
    if (!one.stream) return;
    Stream gone = *std::exchange(one.stream, std::nullopt);
    if (leaders_[gone.leader] == nullptr) return;
    // A part of what it said arrives.
    Leader& leader = *leaders_[gone.leader];
    const size_t arrives = random_.Below(gone.up.size() + 1);
    for (size_t i = 0; i < arrives; ++i) {
      Tell(gone.leader, event::WorkerSaid{gone.session, std::move(gone.up[i])});
    }
    if (leader.workers.erase(gone.session) > 0) {
      leader.named.erase(gone.session);
      Tell(gone.leader, event::WorkerLeft{gone.session, "its connection was closed"});
    }
  }

  void Talk(Member& one) {
    const SessionId session = one.stream->session;
    const auto same = [&] { return one.stream && one.stream->session == session; };
    while (same() && !one.stream->down.empty() && !one.stream->nothing_comes_down) {
      v1::WorkerCommand command = std::move(one.stream->down.front());
      one.stream->down.pop_front();
      const bool is_welcome = command.has_welcome();
      if (!one.worker.Handle(command, std::to_string(one.stream->leader))) {
        Hangup(one);
      } else if (is_welcome) {
        one.stream->welcomed = true;
      }
    }
    if (!same()) return;
    if (turn_ % 5 == 0) {
      v1::WorkerMessage beat;
      beat.mutable_heartbeat();
      one.stream->up.push_back(std::move(beat));
    }
    while (one.stream->welcomed && one.worker.outbox().Next() != nullptr) {
      one.stream->up.push_back(*one.worker.outbox().Next());
      one.worker.outbox().Written();
    }
    while (same() && !one.stream->up.empty()) {
      v1::WorkerMessage message = std::move(one.stream->up.front());
      one.stream->up.pop_front();
      Tell(one.stream->leader, event::WorkerSaid{session, std::move(message)});
    }
  }

  // ---- Links and steps
  // Whether the two ends of the edge open a link: both know its key and its secret.
  bool IsOpen(const PlainWorker::Stage& a, const PlainWorker::Stage& b, uint32_t edge) {
    if (a.topic.run != b.topic.run || a.topic.stamp != b.topic.stamp) return false;
    const auto mine = a.assign.edge_secrets().find(edge);
    const auto its = b.assign.edge_secrets().find(edge);
    if (mine == a.assign.edge_secrets().end() || its == b.assign.edge_secrets().end() ||
        mine->second != its->second) {
      return false;
    }
    if (a.assign.assignment().hash() != b.assign.assignment().hash()) {
      notes_.Violate("I1: a link opens between two assignments of epochs {} and {}", a.topic.epoch,
                     b.topic.epoch);
    }
    return true;
  }

  // Runs a step of each assignment whose first and last stage are both running.
  void Train() {
    for (Member& first : workers_) {
      if (!first.worker.Trains() || first.worker.stage()->cell.stage != 0) continue;
      for (Member& last : workers_) {
        if (!last.worker.Trains() || last.worker.stage()->cell.stage != 1) continue;
        const PlainWorker::Stage &upper = *first.worker.stage(), &lower = *last.worker.stage();
        if (!IsOpen(upper, lower, 0)) continue;
        const uint64_t step = std::max(upper.step, lower.step) + 1;
        const double loss = LossOf(lower.topic.stamp, step);
        first.worker.StepDone(step, /*is_last=*/false, loss);
        last.worker.StepDone(step, /*is_last=*/true, loss);
      }
    }
  }

  Random random_;
  Notes notes_;
  uint64_t turn_ = 0, sessions_ = 0;
  std::vector<std::unique_ptr<Leader>> leaders_;  // null: its process has ended
  std::vector<MonoTime> began_;
  std::vector<Member> workers_;
  std::map<uint64_t, std::string> assignments_;  // by stamp
  std::map<uint64_t, uint64_t> epochs_;          // to the stamp of their first assignment
  uint64_t newest_epoch_ = 0;
  std::map<std::string, std::string> secrets_;  // to the hash of their assignment
  uint64_t trained_after_ = 0;                  // steps of the leader that is left
};

}  // namespace

SimulationResult SimulateTwoLeaders(uint64_t seed, bool print) {
  return TwoLeaders(seed, print).Run();
}

}  // namespace longhaul::coordinator::sim
