// Runs the coordinator's state machine (State) with a simulated clock. The test itself sends the
// messages of all workers. For unit tests and simulations of coordinator/state. Threads: one.
//
// Words: an epoch is one attempt to train a run. A cell is one stage of one replica. An edge is a
// link between two cells. An incarnation is one process of a worker.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/state/state.h"

namespace longhaul::coordinator {

// The names of the workers of most tests.
inline const std::vector<std::string> kAb = {"a", "b"};

inline RunSpec SmallSpec(const std::string& name, std::optional<uint32_t> stages) {
  RunSpec spec;
  spec.name = name;
  spec.model.layers = 4;
  spec.model.hidden = 64;
  spec.model.heads = 2;
  spec.model.context = 64;
  spec.data.text = {"corpus.txt"};
  spec.train.steps = 4;
  spec.train.microbatches = 2;
  spec.pipeline.stages = stages;
  spec.pipeline.placement = PlacementKind::kNames;
  spec.links.codecs = {"none", "none"};
  spec.checkpoint.every = 2;
  spec.checkpoint.keep = 2;
  spec.recovery.attempts = 0;  // any failure ends the run
  return spec;
}

inline DataSet SmallData() {
  return {.token_file_sha256 = std::string(64, 'd'),
          .tokens = 100'000,
          .validation_tokens = 5'000,
          .vocabulary = 256,
          .tokenizer = "bytes",
          .text_bytes = 0};
}

inline v1::LayerTimes SmallTimes() {
  v1::LayerTimes times;
  times.set_block_forward(0.001);
  times.set_block_backward(0.002);
  // Measured times with tensor parallelism over two ranks: faster than one.
  v1::GroupTimes& two = *times.add_groups();
  two.set_tensor(2);
  two.mutable_block()->set_forward(0.0006);
  two.mutable_block()->set_backward(0.0012);
  return times;
}

// Returns the first message of worker `name`, which has one CPU device. The worker's id is
// "id-NAME".
inline v1::Hello HelloOf(const std::string& name, const std::string& incarnation = "1") {
  v1::Hello hello;
  hello.set_protocol_min(9);
  hello.set_protocol_max(9);
  hello.set_worker_id("id-" + name);
  hello.set_incarnation(name + "-" + incarnation);
  hello.set_name(name);
  for (const char* transport : {"ucx", "grpc"}) {
    v1::DataEndpoint& endpoint = *hello.add_endpoints();
    endpoint.set_transport(transport);
    endpoint.add_addresses(name + ":1");
  }
  v1::Device& device = *hello.add_devices();
  device.set_kind("cpu");
  device.set_memory_bytes(uint64_t{8} << 30);
  return hello;
}

// Returns the hello of a worker that already runs stage `stage` of `run`, as after it lost its
// coordinator.
inline v1::Hello HelloAt(const std::string& name, const std::string& run, uint32_t stage,
                         uint64_t epoch = 1) {
  v1::Hello hello = HelloOf(name);
  hello.set_run_id(run);
  hello.set_epoch(epoch);
  hello.mutable_cell()->set_stage(stage);
  return hello;
}

// Returns a user's submission. `id`: the id of the new run. `resume`: asks to go on with the run of
// the same name instead.
inline event::Submitted SubmitOf(const RunSpec& spec, const std::string& id, uint64_t request = 1,
                                 bool resume = false) {
  event::Submitted submitted;
  submitted.request = RequestId(request);
  submitted.spec = spec;
  submitted.new_id = RunId(id);
  submitted.link_secret = "secret of " + id;
  submitted.submit.set_resume(resume);
  v1::DataFile& file = *submitted.submit.add_data_files();
  file.set_name("corpus.txt");
  file.set_sha256(std::string(64, 'c'));
  return submitted;
}

// Returns a worker's report that it has written its checkpoint file (shard). `digit` repeated 64
// times is the file's hash.
inline v1::ShardReport ShardOf(uint64_t step, uint32_t stage, char digit = 'a') {
  v1::ShardReport shard;  // of ten bytes
  shard.set_step(step);
  v1::CheckpointFile& file = *shard.add_files();
  file.set_name(fmt::format("stage-{}.params.safetensors", stage));
  file.set_sha256(std::string(64, digit));
  file.set_bytes(10);
  return shard;
}

class Coordinator {
 public:
  // `stored`: the runs that the coordinator finds in its store at the start.
  explicit Coordinator(const std::vector<RunRecord>& stored = {}, const StateOptions& options = {})
      : options_(options) {
    options_.version = "1.2.3";
    for (const RunRecord& record : stored) Keep(record);
    state = std::make_unique<State>(options_, StoredRuns{.runs = stored}, 1, now);
  }

  // Tick and TickAll pass events to the state machine and record its writes and commands in the
  // members below. A second tick answers commands as the members *_are_answered and
  // plans_are_computed say. Returns `last`: the result of the newest tick.
  template <class... Some>
  TickResult& Tick(Some... some) {
    std::vector<Event> list;
    (list.emplace_back(std::move(some)), ...);
    return TickAll(std::move(list));
  }
  TickResult& TickAll(std::vector<Event> list) {
    if (twice) {
      std::vector<Event> doubled;
      for (Event& event : list) {
        doubled.push_back(event);
        doubled.push_back(std::move(event));
      }
      list = std::move(doubled);
    }
    last = state->Tick(std::move(list), now, 1'000'000 + absl::ToInt64Milliseconds(now - start));
    for (const Write& write : last.writes) {
      if (const auto* run = std::get_if<write::Run>(&write)) {
        Keep(run->record);
      } else if (const auto* event = std::get_if<write::LogEvent>(&write)) {
        events.push_back(event->event);
      } else if (const auto* step = std::get_if<write::StepDone>(&write)) {
        steps[step->run.value()][step->step.step()] = step->step;
      } else if (const auto* call = std::get_if<write::Answered>(&write)) {
        answered.push_back(call->call);
      }
    }
    for (const Command& command : last.commands) {
      commands.push_back(command);
      const auto* to = std::get_if<command::ToWorker>(&command);
      if (to != nullptr && (to->message.has_measure() || to->message.has_assign())) {
        stamps_[{to->message.run_id(), to->message.epoch()}] = to->message.stamp();
      }
    }
    std::vector<Event> answers;
    for (const Command& command : last.commands) {
      if (auto answer = AnswerTo(command)) answers.push_back(*std::move(answer));
    }
    if (!answers.empty()) TickAll(std::move(answers));
    return last;
  }
  // Restarts the coordinator: makes a new state machine from the recorded store. Workers must Join
  // again.
  void Restart() {
    const uint64_t next = events.empty() ? 1 : events.back().sequence() + 1;
    StoredRuns stored{.runs = Stored()};
    stored.answered = answered;
    for (const auto& [run, rows] : steps) {
      for (const auto& [step, row] : rows) stored.steps[RunId(run)].push_back(row);
    }
    state = std::make_unique<State>(options_, std::move(stored), next, now);
  }
  void Advance(absl::Duration by) { now = now + by; }
  // Advances the clock by `time` in steps of at most one second. After each step, every worker of
  // `alive` sends a heartbeat.
  void Pass(absl::Duration time, const std::vector<std::string>& alive) {
    for (const MonoTime end = now + time; now < end;) {
      Advance(std::min(absl::Duration(absl::Seconds(1)), end - now));
      for (const std::string& worker : alive) {
        v1::WorkerMessage message;
        message.mutable_heartbeat();
        Tick(Said(worker, message));
      }
    }
  }

  // A worker opens a session, which replaces the worker's earlier one in `sessions`. A hello that
  // names a run without a stamp gets the stamp of that epoch.
  SessionId Join(v1::Hello hello) {
    if (!hello.run_id().empty() && hello.stamp() == 0) {
      hello.set_stamp(StampAt(hello.run_id(), hello.epoch()));
    }
    const SessionId session(next_session_++);
    const std::string name = hello.name();
    sessions[name] = session;
    Tick(event::WorkerJoined{session, std::move(hello)});
    return session;
  }
  SessionId Join(const std::string& name) { return Join(HelloOf(name)); }

  // Returns the stamp of the newest assignment or measurement of this epoch; 0: there was none.
  uint64_t StampAt(const std::string& run, uint64_t epoch) const {
    const auto found = stamps_.find({run, epoch});
    return found == stamps_.end() ? 0 : found->second;
  }
  // Returns an empty message about `run`. `epoch`: nullopt means the run's newest epoch. The run
  // must exist.
  v1::WorkerMessage About(const std::string& run, std::optional<uint64_t> epoch = {}) const {
    v1::WorkerMessage message;
    message.set_run_id(run);
    message.set_epoch(epoch ? *epoch : views().RunOf(run)->epoch());
    message.set_stamp(StampAt(run, message.epoch()));
    return message;
  }
  // The next functions send one kind of message as `worker`, which must have joined: Times reports
  // measured times of layers, Ready that the stage can start, Step and Steps finished steps, Shards
  // written checkpoint files, Finished the end of training, Error a failure.
  event::WorkerSaid Said(const std::string& worker, v1::WorkerMessage message) const {
    return {sessions.at(worker), std::move(message)};
  }
  void Times(const std::string& worker, const std::string& run, uint64_t epoch, double taken = 0,
             double waited = 0) {
    v1::WorkerMessage message = About(run, epoch);
    *message.mutable_layer_times() = SmallTimes();
    message.mutable_layer_times()->set_seconds_taken(taken);
    message.mutable_layer_times()->set_seconds_waited(waited);
    Tick(Said(worker, message));
  }
  void Ready(const std::string& worker, const std::string& run, uint64_t start_step = 0) {
    v1::WorkerMessage message = About(run);
    message.mutable_stage_ready()->set_start_step(start_step);
    Tick(Said(worker, message));
  }
  v1::StepReport Report(uint64_t step, uint32_t stage, uint32_t stages) const {
    v1::StepReport report;
    report.set_step(step);
    report.set_seconds(0.5);
    if (stage == 0) {
      report.set_has_norm(true);
      report.set_gradient_norm(2.0);
      report.set_learning_rate(1e-3);
    }
    if (stage + 1 == stages) {
      report.set_has_loss(true);
      report.set_loss(5.0 - 0.1 * static_cast<double>(step));
    }
    return report;
  }
  void Step(const std::string& worker, const std::string& run, const v1::StepReport& report) {
    v1::WorkerMessage message = About(run);
    *message.mutable_step() = report;
    Tick(Said(worker, message));
  }
  // All stages report `step`; workers[s] has stage s.
  void Steps(const std::vector<std::string>& workers, const std::string& run, uint64_t step) {
    const auto stages = static_cast<uint32_t>(workers.size());
    for (uint32_t s = 0; s < stages; ++s) Step(workers[s], run, Report(step, s, stages));
  }
  void Shards(const std::vector<std::string>& workers, const std::string& run, uint64_t step,
              char digit = 'a') {
    for (uint32_t s = 0; s < workers.size(); ++s) {
      v1::WorkerMessage message = About(run);
      *message.mutable_shard() = ShardOf(step, s, digit);
      Tick(Said(workers[s], message));
    }
  }
  void Finished(const std::string& worker, const std::string& run, uint64_t step,
                bool stopped = false) {
    v1::WorkerMessage message = About(run);
    message.mutable_finished()->set_step(step);
    message.mutable_finished()->set_stopped(stopped);
    Tick(Said(worker, message));
  }
  void Error(const std::string& worker, const std::string& run, const std::string& text,
             std::optional<uint32_t> lost_edge = {}) {
    v1::WorkerMessage message = About(run);
    message.mutable_error()->set_message(text);
    if (lost_edge) message.mutable_error()->set_lost_edge(*lost_edge);
    Tick(Said(worker, message));
  }
  // `worker` reports the state of its link over `edge`: "suspect", "healthy", "lost" or "healed".
  void Link(const std::string& worker, const std::string& run, uint32_t edge,
            const std::string& link_state) {
    v1::WorkerMessage message = About(run);
    message.mutable_link()->set_edge(edge);
    message.mutable_link()->set_state(link_state);
    Tick(Said(worker, message));
  }
  void Leave(const std::string& worker, const std::string& why = "closed") {
    Tick(event::WorkerLeft{sessions.at(worker), why});
  }
  // A worker's process ends for good. Each neighbor in `edges` (worker, edge) reports a lost link.
  // Two seconds pass.
  void Die(const std::string& worker, const std::string& run,
           const std::vector<std::pair<std::string, uint32_t>>& edges,
           const std::string& why = "closed") {
    Leave(worker, why);
    for (const auto& [neighbour, edge] : edges) Link(neighbour, run, edge, "lost");
    Advance(absl::Seconds(2));
    Tick();
  }
  // Answers the newest command to compute a plan or a retuned plan, by plan_with or retune_with.
  // Does nothing if there is none. For tests with plans_are_computed false.
  void Computed() {
    const Command* asked = nullptr;
    for (const Command& command : commands) {
      const bool is_one = std::holds_alternative<command::ComputePlan>(command) ||
                          std::holds_alternative<command::ComputeRetune>(command);
      if (is_one) asked = &command;
    }
    if (asked != nullptr) Tick(*ComputedFor(*asked));
  }
  // Reports that the data of `run` is tokenized.
  void Data(const std::string& run) { Tick(event::DataPrepared{RunId(run), SmallData()}); }

  // `worker` answers the newest command to check its shards. Each shard is reported undamaged, and
  // copied if the command asks for copies; `judge` may change that. Does nothing without a command.
  void Checked(
      const std::string& worker,
      const std::function<void(v1::ShardState&)>& judge = [](v1::ShardState&) {}) {
    const v1::WorkerCommand* asked = Last(worker, v1::WorkerCommand::kCheckShards);
    if (asked != nullptr) Checked(worker, v1::WorkerCommand(*asked), judge);
  }
  // As above, for the command `asked`.
  void Checked(
      const std::string& worker, const v1::WorkerCommand& asked,
      const std::function<void(v1::ShardState&)>& judge = [](v1::ShardState&) {}) {
    v1::WorkerMessage message;
    message.set_run_id(asked.run_id());
    message.set_epoch(asked.epoch());
    message.set_stamp(asked.stamp());
    v1::ShardsChecked& answer = *message.mutable_shards_checked();
    answer.set_check(asked.check_shards().check());
    for (const v1::CheckpointFile& file : asked.check_shards().files()) {
      v1::ShardState& shard = *answer.add_shards();
      shard.set_name(file.name());
      shard.set_copied(asked.check_shards().copy());
      judge(shard);
      if (shard.copied() && !asked.check_shards().has_to()) {
        Tick(event::CopyStored{WorkerId("id-" + worker), file.sha256()});
      }
    }
    Tick(Said(worker, message));
  }

  // `worker` answers the newest command to measure a link: it receives 100 Mbit/s, and a round trip
  // takes 20 ms. `change` may change the answer. Does nothing without a command.
  void Probed(
      const std::string& worker,
      const std::function<void(v1::LinkProbed&)>& change = [](v1::LinkProbed&) {}) {
    const v1::WorkerCommand* asked = Last(worker, v1::WorkerCommand::kProbeLink);
    if (asked == nullptr) return;
    v1::WorkerMessage message = ProbedOf(*asked);
    change(*message.mutable_link_probed());
    Tick(Said(worker, message));
  }
  static v1::WorkerMessage ProbedOf(const v1::WorkerCommand& asked) {
    v1::WorkerMessage message;
    message.set_run_id(asked.run_id());
    message.set_epoch(asked.epoch());
    message.set_stamp(asked.stamp());
    v1::LinkProbed& answer = *message.mutable_link_probed();
    answer.set_probe(asked.probe_link().probe());
    answer.set_goodput_bits_per_second(100e6);
    answer.set_round_trip_seconds(0.02);
    return message;
  }

  // Bring a submitted run to the state preparing or running without faults. workers[s] gets stage
  // s.
  void ToPreparing(const std::vector<std::string>& workers, const std::string& run) {
    Data(run);
    for (const std::string& worker : workers) Times(worker, run, views().RunOf(run)->epoch());
    for (const std::string& worker : workers) Checked(worker);
  }
  void ToRunning(const std::vector<std::string>& workers, const std::string& run,
                 uint64_t start_step = 0) {
    ToPreparing(workers, run);
    for (const std::string& worker : workers) Ready(worker, run, start_step);
  }

  const Views& views() const { return state->views(); }
  std::string StateOf(const std::string& run) const { return views().RunOf(run)->state(); }
  std::string ReasonOf(const std::string& run) const { return views().RunOf(run)->reason(); }
  // Count returns the number of commands of this kind to the worker's present session since the
  // last Forget. Last returns the newest one, LastReply the newest reply to users; null: none. The
  // pointers are valid until the next Tick or Forget.
  int Count(const std::string& worker, v1::WorkerCommand::BodyCase kind) const {
    int count = 0;
    for (const Command& command : commands) {
      const auto* to = std::get_if<command::ToWorker>(&command);
      count +=
          to != nullptr && to->session == sessions.at(worker) && to->message.body_case() == kind;
    }
    return count;
  }
  const v1::WorkerCommand* Last(const std::string& worker, v1::WorkerCommand::BodyCase kind) const {
    const v1::WorkerCommand* found = nullptr;
    for (const Command& command : commands) {
      const auto* to = std::get_if<command::ToWorker>(&command);
      if (to == nullptr || to->session != sessions.at(worker)) continue;
      if (to->message.body_case() == kind) found = &to->message;
    }
    return found;
  }
  template <class Reply>
  const Reply* LastReply() const {
    const Reply* found = nullptr;
    for (const Command& command : commands) {
      if (const auto* reply = std::get_if<Reply>(&command)) found = reply;
    }
    return found;
  }
  // Returns the text of the newest event of this kind; "": there is none.
  std::string LastEvent(const std::string& kind) const {
    for (auto it = events.rbegin(); it != events.rend(); ++it) {
      if (it->kind() == kind) return it->text();
    }
    return "";
  }
  void Forget() { commands.clear(); }
  // Returns the newest record of each run, in the order in which the runs were first stored.
  std::vector<RunRecord> Stored() const {
    std::vector<RunRecord> all;
    for (const std::string& id : order_) all.push_back(records.at(id));
    return all;
  }

  const MonoTime start = MonoTime() + absl::Hours(1);
  MonoTime now = start;
  bool twice = false;               // deliver every event twice
  bool probes_are_answered = true;  // workers measure links at once, as Probed answers
  bool reach_is_answered = true;    // workers report at once that they reach all other workers
  bool plans_are_computed = true;   // at once, by plan_with and retune_with
  std::function<StatusOr<Plan>(const PlanRequest&)> plan_with = [](const PlanRequest& request) {
    return MakePlan(request);
  };
  std::function<StatusOr<std::optional<Plan>>(const RunSpec&, const Plan&, const Seen&)>
      retune_with = [](const RunSpec& spec, const Plan& plan, const Seen& seen) {
        return Retune(spec, plan, seen);
      };
  std::unique_ptr<State> state;
  std::map<std::string, SessionId> sessions;  // newest of each worker, by name
  TickResult last;
  std::vector<Command> commands;
  std::map<std::string, RunRecord> records;  // the rows of a store, by run id
  std::vector<v1::Event> events;
  std::map<std::string, std::map<uint64_t, v1::StepRecord>> steps;
  std::vector<AnsweredCall> answered;

 private:
  void Keep(const RunRecord& record) {
    if (!records.contains(record.id.value())) order_.push_back(record.id.value());
    records[record.id.value()] = record;
    if (!record.plan) return;
    const Assignment& assignment = record.plan->assignment;
    stamps_[{record.id.value(), assignment.epoch.value()}] = assignment.stamp().value();
  }

  std::optional<Event> AnswerTo(const Command& command) const {
    if (plans_are_computed) {
      if (auto computed = ComputedFor(command)) return computed;
    }
    const auto* to = std::get_if<command::ToWorker>(&command);
    if (to == nullptr) return std::nullopt;
    if (probes_are_answered && to->message.has_probe_link()) {
      return event::WorkerSaid{to->session, ProbedOf(to->message)};
    }
    if (!reach_is_answered || !to->message.try_reach().dial()) return std::nullopt;
    v1::WorkerMessage message;
    message.mutable_reach_tried()->set_check(to->message.try_reach().check());
    for (int i = 0; i < to->message.try_reach().addresses_size(); ++i) {
      message.mutable_reach_tried()->add_problems("");
    }
    return event::WorkerSaid{to->session, std::move(message)};
  }

  std::optional<Event> ComputedFor(const Command& command) const {
    if (const auto* plan = std::get_if<command::ComputePlan>(&command)) {
      return event::PlanComputed{plan->id, plan_with(plan->request)};
    }
    if (const auto* retune = std::get_if<command::ComputeRetune>(&command)) {
      return event::RetuneComputed{retune->id,
                                   retune_with(retune->spec, retune->plan, retune->seen)};
    }
    return std::nullopt;
  }

  StateOptions options_;
  std::vector<std::string> order_;  // ids of `records`, in the order in which they were added
  uint64_t next_session_ = 1;
  std::map<std::pair<std::string, uint64_t>, uint64_t> stamps_;  // by run and epoch
};

}  // namespace longhaul::coordinator
