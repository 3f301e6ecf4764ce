// longhaul-coordinator-bench: what many workers and runs cost the coordinator's state machine.
// Stand-ins for workers train runs on a virtual clock. Measured: ticks under that
// load, the queries of `longhaul ps`, `workers` and `status`, hellos one by one, and all hellos
// after a restart of the coordinator. Times are CPU times of the one thread, so that other programs
// on the machine hardly count.
#include <fmt/core.h>
#include <malloc.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/state/state.h"
#include "coordinator/store/store.h"
#include "run/plan/proto/plan_proto.h"
#include "tests/support/state_harness.h"
#include "tests/support/worker_answers.h"

namespace longhaul::bench {
namespace {

using coordinator::Command;
using coordinator::Event;
using coordinator::RunRecord;
using coordinator::SessionId;
using coordinator::State;
using coordinator::Store;
using coordinator::StoredRuns;
using coordinator::TickResult;
using coordinator::Write;

constexpr double kStepSeconds = 1;

struct Options {
  uint32_t workers = 1000, runs = 100, stages = 8, ended = 1000, seconds = 30;
  uint32_t tick_ms = 10;  // events of so much virtual time come in one tick
  uint32_t queries = 100;
  std::string store;  // a folder for a store that takes the writes; empty: none
  std::string csv, label = "now";
};

// The CPU time that this thread has used.
MonoTime CpuNow() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return MonoTime::FromNanoseconds(int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec);
}

// Times in milliseconds.
class Times {
 public:
  void Add(MonoTime since) { all_.push_back(absl::ToDoubleMilliseconds(CpuNow() - since)); }
  double At(double share) {
    if (all_.empty()) return 0;
    std::ranges::sort(all_);
    return all_[static_cast<size_t>(share * static_cast<double>(all_.size() - 1))];
  }
  double Sum() const {
    double sum = 0;
    for (const double one : all_) sum += one;
    return sum;
  }
  size_t count() const { return all_.size(); }

 private:
  std::vector<double> all_;
};

// One stand-in: its session and the stage that it trains.
struct StandIn {
  v1::Hello hello;
  SessionId session{};
  std::string run;
  uint64_t epoch = 0, stamp = 0;
  v1::CellId cell;
  bool first = false, last = false, training = false;
  std::vector<uint32_t> edges;
  uint64_t step = 0;
};

class Fleet {
 public:
  explicit Fleet(const Options& options) : options_(options) {}

  Status Run();

 private:
  void MakeState(StoredRuns stored);
  // A tick with these events, and one with what the stand-ins and the coordinator's threads answer,
  // and so on until nobody answers.
  Status TickUntilQuiet(std::vector<Event> events, Times* times = nullptr);
  Status Tick(std::vector<Event> events, Times* times);
  void Keep(const std::vector<Write>& writes);
  void Answer(const Command& command);
  void AnswerOf(StandIn& worker, const v1::WorkerCommand& command);
  Status JoinAll(std::string_view what);
  Status SubmitAll();
  Status Load();
  void Ask();
  Status Restart();
  v1::WorkerMessage StepOf(StandIn& worker) const;
  void Row(std::string_view what, Times& times, std::string_view more = "");
  static std::string NameOf(uint32_t i) { return fmt::format("w{:04}", i); }

  const Options options_;
  std::unique_ptr<State> state_;
  std::unique_ptr<Store> store_;
  MonoTime now_ = MonoTime() + absl::Hours(1);
  std::vector<StandIn> workers_;
  std::unordered_map<SessionId, size_t> by_session_;
  uint64_t last_session_ = 0, events_ = 1, run_writes_ = 0;
  std::vector<Event> answers_;
  std::map<std::string, RunRecord> records_;
  std::vector<std::string> order_;
  Times store_times_;
};

void Fleet::MakeState(StoredRuns stored) {
  coordinator::StateOptions state;
  state.version = "bench";
  state_ = std::make_unique<State>(state, std::move(stored), events_, now_);
}

Status Fleet::Tick(std::vector<Event> events, Times* times) {
  const MonoTime began = CpuNow();
  TickResult result =
      state_->Tick(std::move(events), now_, absl::ToInt64Milliseconds(now_ - MonoTime()) + 1);
  if (times != nullptr) times->Add(began);
  Keep(result.writes);
  if (store_ != nullptr) {
    const MonoTime stored = CpuNow();
    LH_RETURN_IF_ERROR(store_->Apply(result.writes));
    if (times != nullptr) store_times_.Add(stored);
  }
  for (const Command& command : result.commands) Answer(command);
  return absl::OkStatus();
}

Status Fleet::TickUntilQuiet(std::vector<Event> events, Times* times) {
  LH_RETURN_IF_ERROR(Tick(std::move(events), times));
  while (!answers_.empty()) {
    now_ = now_ + absl::Milliseconds(1);
    LH_RETURN_IF_ERROR(Tick(std::exchange(answers_, {}), times));
  }
  return absl::OkStatus();
}

void Fleet::Keep(const std::vector<Write>& writes) {
  for (const Write& write : writes) {
    if (const auto* run = std::get_if<coordinator::write::Run>(&write)) {
      ++run_writes_;
      const std::string& id = run->record.id.value();
      if (!records_.contains(id)) order_.push_back(id);
      records_[id] = run->record;
    } else if (const auto* event = std::get_if<coordinator::write::LogEvent>(&write)) {
      events_ = event->event.sequence() + 1;
    }
  }
}

void Fleet::Answer(const Command& command) {
  if (const auto* to = std::get_if<coordinator::command::ToWorker>(&command)) {
    const auto found = by_session_.find(to->session);
    if (found != by_session_.end()) AnswerOf(workers_[found->second], to->message);
  } else if (const auto* plan = std::get_if<coordinator::command::ComputePlan>(&command)) {
    answers_.emplace_back(coordinator::event::PlanComputed{plan->id, MakePlan(plan->request)});
  } else if (const auto* retune = std::get_if<coordinator::command::ComputeRetune>(&command)) {
    answers_.emplace_back(coordinator::event::RetuneComputed{retune->id, std::nullopt});
  } else if (const auto* data = std::get_if<coordinator::command::PrepareData>(&command)) {
    answers_.emplace_back(coordinator::event::DataPrepared{data->run, coordinator::SmallData()});
  } else if (const auto* check = std::get_if<coordinator::command::CheckCopies>(&command)) {
    answers_.emplace_back(coordinator::event::CopiesChecked{
        .check = check->check, .problems = std::vector<std::string>(check->files.size())});
  }
}

void Fleet::AnswerOf(StandIn& worker, const v1::WorkerCommand& command) {
  v1::WorkerMessage answer;
  answer.set_run_id(command.run_id());
  answer.set_epoch(command.epoch());
  answer.set_stamp(command.stamp());
  if (command.has_measure()) {
    *answer.mutable_layer_times() = coordinator::SmallTimes();
  } else if (command.try_reach().dial()) {
    *answer.mutable_reach_tried() = testing::ReachTriedOf(command.try_reach());
  } else if (command.has_probe_link()) {
    answer = coordinator::Coordinator::ProbedOf(command);
  } else if (command.has_check_shards()) {
    answer.mutable_shards_checked()->set_check(command.check_shards().check());
    for (const v1::CheckpointFile& file : command.check_shards().files()) {
      v1::ShardState& shard = *answer.mutable_shards_checked()->add_shards();
      shard.set_name(file.name());
    }
  } else if (command.has_assign()) {
    const v1::Assign& assign = command.assign();
    const Assignment assignment = FromProto(assign.assignment());
    const Cell* cell = assignment.Find(FromProto(assign.cell()));
    if (cell == nullptr) return;
    worker.run = command.run_id();
    worker.epoch = command.epoch();
    worker.stamp = command.stamp();
    worker.cell = assign.cell();
    worker.first = cell->roles.embedding;
    worker.last = cell->roles.head;
    worker.training = false;
    worker.edges.clear();
    for (const Edge& edge : assignment.edges) {
      if (edge.from == cell->id || edge.to == cell->id) worker.edges.push_back(edge.id.value());
    }
    worker.step = assign.assignment().start_step();
    answer.mutable_stage_ready()->set_start_step(worker.step);
  } else if (command.has_start()) {
    worker.training = true;
    answer.mutable_stage_started();
  } else {
    if (command.has_abort() && command.run_id() == worker.run) {
      worker.run.clear();
      worker.training = false;
    }
    return;
  }
  answers_.emplace_back(coordinator::event::WorkerSaid{worker.session, std::move(answer)});
}

Status Fleet::JoinAll(std::string_view what) {
  Times times;
  for (size_t i = 0; i < workers_.size(); ++i) {
    StandIn& worker = workers_[i];
    worker.session = SessionId(++last_session_);
    by_session_[worker.session] = i;
    v1::Hello hello = worker.hello;
    if (!worker.run.empty()) {
      hello.set_run_id(worker.run);
      hello.set_epoch(worker.epoch);
      hello.set_stamp(worker.stamp);
      *hello.mutable_cell() = worker.cell;
    }
    now_ = now_ + absl::Milliseconds(1);
    std::vector<Event> joined;
    joined.emplace_back(coordinator::event::WorkerJoined{worker.session, std::move(hello)});
    LH_RETURN_IF_ERROR(TickUntilQuiet(std::move(joined), &times));
  }
  // Workers of a crowd dial their peers when all have come (books/reach_book.h). A long gap between
  // ticks would count as a standstill of the process.
  for (int i = 0; i < 30; ++i) {
    now_ = now_ + absl::Milliseconds(100);
    LH_RETURN_IF_ERROR(TickUntilQuiet({}, &times));
  }
  Row(what, times);
  return absl::OkStatus();
}

Status Fleet::SubmitAll() {
  Times times;
  for (uint32_t i = 0; i < options_.runs; ++i) {
    RunSpec spec = coordinator::SmallSpec(fmt::format("run{}", i), options_.stages);
    spec.model.layers = 2 * options_.stages;
    spec.train.steps = 1'000'000;
    spec.checkpoint.every = 1'000'000;
    spec.recovery.attempts = 10;
    now_ = now_ + absl::Milliseconds(10);
    std::vector<Event> submitted;
    submitted.emplace_back(coordinator::SubmitOf(spec, fmt::format("run{}-id", i), i + 1));
    LH_RETURN_IF_ERROR(TickUntilQuiet(std::move(submitted), &times));
  }
  const auto training = std::ranges::count_if(workers_, &StandIn::training);
  if (training != int64_t{options_.runs} * options_.stages) {
    std::string why;
    for (const v1::RunStatus& run : state_->views().Runs()) {
      if (run.state() != "running")
        why = fmt::format("{} is {}: {}", run.run_id(), run.state(), run.reason());
    }
    return FailedPrecondition("expected {} stages to train, {} do; {}",
                              options_.runs * options_.stages, training, why);
  }
  Row("submit", times);
  return absl::OkStatus();
}

v1::WorkerMessage Fleet::StepOf(StandIn& worker) const {
  v1::WorkerMessage message;
  message.set_run_id(worker.run);
  message.set_epoch(worker.epoch);
  message.set_stamp(worker.stamp);
  v1::StepReport& report = *message.mutable_step();
  report.set_step(++worker.step);
  report.set_seconds(kStepSeconds);
  report.set_forward_seconds(0.3);
  report.set_backward_seconds(0.5);
  report.set_has_norm(worker.first);
  report.set_gradient_norm(1);
  report.set_learning_rate(1e-3);
  report.set_has_loss(worker.last);
  report.set_loss(3);
  for (const uint32_t edge : worker.edges) {
    v1::LinkUse& use = *report.add_links();
    use.set_edge(edge);
    use.set_payload_bytes_sent(1'000'000);
    use.set_link_bytes_sent(1'010'000);
    use.set_send_busy_seconds(0.1);
  }
  return message;
}

// Each stand-in says a heartbeat and, if it trains, a step within each second, at a moment of its
// own.
Status Fleet::Load() {
  Times times;
  store_times_ = Times();
  run_writes_ = 0;
  size_t events = 0;
  const uint32_t slots = 1000 / options_.tick_ms;
  for (uint32_t second = 0; second < options_.seconds; ++second) {
    for (uint32_t slot = 0; slot < slots; ++slot) {
      now_ = now_ + absl::Milliseconds(options_.tick_ms);
      std::vector<Event> said = std::exchange(answers_, {});
      for (size_t i = slot; i < workers_.size(); i += slots) {
        v1::WorkerMessage beat;
        beat.mutable_heartbeat()->set_memory_used_bytes(uint64_t{1} << 30);
        said.emplace_back(coordinator::event::WorkerSaid{workers_[i].session, std::move(beat)});
        // The steps of a run come together.
        if (workers_[i].training) {
          said.emplace_back(
              coordinator::event::WorkerSaid{workers_[i].session, StepOf(workers_[i])});
        }
      }
      events += said.size();
      LH_RETURN_IF_ERROR(Tick(std::move(said), &times));
    }
  }
  const double virtual_ms = 1000.0 * options_.seconds;
  Row("tick", times,
      fmt::format("{:.0f} events a second, {:.1f} % of a core, {:.1f} run rows a second",
                  static_cast<double>(events) / options_.seconds, 100 * times.Sum() / virtual_ms,
                  static_cast<double>(run_writes_) / options_.seconds));
  if (store_ != nullptr) Row("store", store_times_);
  return absl::OkStatus();
}

void Fleet::Ask() {
  Times ps, all, list, status;
  for (uint32_t i = 0; i < options_.queries; ++i) {
    MonoTime asked = CpuNow();
    (void)state_->views().ListRuns({.most_ended = 50});  // as the command asks
    ps.Add(asked);
    asked = CpuNow();
    (void)state_->views().Runs();
    all.Add(asked);
    asked = CpuNow();
    (void)state_->views().Workers(now_);
    list.Add(asked);
    asked = CpuNow();
    (void)state_->views().RunOf(fmt::format("run{}", i % options_.runs));
    status.Add(asked);
  }
  Row("ps", ps);
  Row("ps all", all);
  Row("workers", list);
  Row("status", status);
}

// Another coordinator goes on with what the store has.
Status Fleet::Restart() {
  state_.reset();
  by_session_.clear();
  const size_t memory = ::mallinfo2().uordblks;
  StoredRuns stored;
  Times load, restart;
  if (store_ != nullptr) {
    std::vector<Write> writes;
    for (const std::string& id : order_) {
      writes.emplace_back(coordinator::write::Run{records_.at(id)});
    }
    LH_RETURN_IF_ERROR(store_->Apply(writes));
    writes.clear();
    const MonoTime began = CpuNow();
    LH_ASSIGN_OR_RETURN(stored, store_->LoadRuns());
    load.Add(began);
    Row("load", load);
  } else {
    for (const std::string& id : order_) stored.runs.push_back(records_.at(id));
  }
  const size_t runs = stored.runs.size();
  const MonoTime began = CpuNow();
  MakeState(std::move(stored));
  LH_RETURN_IF_ERROR(Tick({}, nullptr));
  restart.Add(began);
  const double bytes = static_cast<double>(::mallinfo2().uordblks - memory);
  Row("restart", restart,
      fmt::format("{} runs take {:.1f} MB, {:.1f} KB each", runs, bytes / 1e6,
                  bytes / 1e3 / static_cast<double>(runs)));
  return absl::OkStatus();
}

void Fleet::Row(std::string_view what, Times& times, std::string_view more) {
  fmt::print(
      "{:10} {:6} times: p50 {:8.3f} ms, p99 {:8.3f} ms, longest {:8.3f} ms, all {:.2f} s{}{}\n",
      what, times.count(), times.At(0.5), times.At(0.99), times.At(1), times.Sum() / 1000,
      more.empty() ? "" : "; ", more);
  if (options_.csv.empty()) return;
  std::ofstream file(options_.csv, std::ios::app);
  if (file.tellp() == 0) {
    file << "version,workers,runs,stages,ended,what,times,p50_ms,p99_ms,max_ms,all_s\n";
  }
  file << fmt::format("{},{},{},{},{},{},{},{:.3f},{:.3f},{:.3f},{:.3f}\n", options_.label,
                      options_.workers, options_.runs, options_.stages, options_.ended, what,
                      times.count(), times.At(0.5), times.At(0.99), times.At(1),
                      times.Sum() / 1000);
}

Status Fleet::Run() {
  if (!options_.store.empty()) {
    LH_ASSIGN_OR_RETURN(store_, Store::Open(options_.store));
  }
  for (uint32_t i = 1; i <= options_.workers; ++i) {
    StandIn& worker = workers_.emplace_back();
    worker.hello = coordinator::HelloOf(NameOf(i));
    // As a random one: in no order.
    worker.hello.set_worker_id(fmt::format("{:016x}", uint64_t{i} * 0x9e3779b97f4a7c15));
  }
  MakeState({});
  LH_RETURN_IF_ERROR(JoinAll("hello"));
  LH_RETURN_IF_ERROR(SubmitAll());
  // Runs that ended earlier have plans as those that train.
  const std::vector<std::string> trained = order_;
  for (uint32_t i = 0; i < options_.ended; ++i) {
    RunRecord record = records_.at(trained[i % trained.size()]);
    record.id = RunId(fmt::format("ended{}-id", i));
    record.spec.name = fmt::format("ended{}", i);
    record.state = coordinator::RunState::kDone;
    record.ended_unix_ms = 1;
    order_.insert(order_.begin(), record.id.value());
    records_[record.id.value()] = std::move(record);
  }
  LH_RETURN_IF_ERROR(Restart());
  LH_RETURN_IF_ERROR(JoinAll("rejoin"));
  LH_RETURN_IF_ERROR(Load());
  Ask();
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures the coordinator's state machine with many workers and runs.");
  app.add_option("--workers", options.workers)->capture_default_str();
  app.add_option("--runs", options.runs, "Runs that train")->capture_default_str();
  app.add_option("--stages", options.stages, "Of each run")->capture_default_str();
  app.add_option("--ended", options.ended, "Runs that have ended")->capture_default_str();
  app.add_option("--seconds", options.seconds, "Virtual time of the load")->capture_default_str();
  app.add_option("--tick-ms", options.tick_ms, "Events of so much virtual time come in one tick")
      ->capture_default_str()
      ->check(CLI::Range(1u, 1000u));
  app.add_option("--queries", options.queries, "Of each kind")->capture_default_str();
  app.add_option("--store", options.store, "Empty folder for a store that takes the writes");
  app.add_option("--csv", options.csv, "Append rows to this file");
  app.add_option("--label", options.label, "First column of the rows")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (options.runs == 0 || options.stages == 0 ||
      uint64_t{options.runs} * options.stages > options.workers) {
    fmt::print(stderr, "expected a worker for each stage of each run: {} x {} stages, {} workers\n",
               options.runs, options.stages, options.workers);
    return 2;
  }
  const Status status = Fleet(options).Run();
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", Message(status));
  return 1;
}

}  // namespace
}  // namespace longhaul::bench

int main(int argc, char** argv) {
  return longhaul::bench::Main(argc, argv);
}
