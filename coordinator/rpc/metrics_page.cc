#include "coordinator/rpc/metrics_page.h"

#include <array>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/clock.h"

namespace longhaul::coordinator {
namespace {

using metrics::AddFamily;
using metrics::AddRows;
using metrics::Family;
using metrics::Kind;
using metrics::Labelled;
using metrics::Page;
using metrics::Row;

using Value = std::optional<double>;

Value If(bool known, double value) {
  return known ? Value(value) : std::nullopt;
}

constexpr Kind kGauge = Kind::kGauge;
constexpr Kind kCounter = Kind::kCounter;

constexpr Row<v1::RunStatus> kRunRows[] = {
    {"longhaul_run_step", kGauge, "Last step that all stages have finished.",
     [](const v1::RunStatus& run) -> Value { return run.step(); }},
    {"longhaul_run_steps", kGauge, "Steps after which the run is done.",
     [](const v1::RunStatus& run) -> Value { return run.steps(); }},
    {"longhaul_run_epoch", kGauge, "Newest epoch; each interruption begins another.",
     [](const v1::RunStatus& run) -> Value { return run.epoch(); }},
    {"longhaul_run_step_seconds", kGauge, "Median time of the last steps.",
     [](const v1::RunStatus& run) { return If(run.step_seconds() > 0, run.step_seconds()); }},
    {"longhaul_run_tokens_per_second", kGauge, "Tokens trained in a second, over all replicas.",
     [](const v1::RunStatus& run) {
       return If(run.tokens_per_second() > 0, run.tokens_per_second());
     }},
    {"longhaul_run_loss", kGauge, "Training loss of the last step in nats a token.",
     [](const v1::RunStatus& run) {
       return If(run.step() > 0 && run.replay_source().empty(), run.loss());
     }},
    {"longhaul_run_gradient_norm", kGauge, "Gradient norm of the last step, before clipping.",
     [](const v1::RunStatus& run) {
       return If(run.step() > 0 && run.replay_source().empty(), run.gradient_norm());
     }},
    {"longhaul_run_validation_loss", kGauge,
     "Newest validation loss in nats a token, through the codecs of the links.",
     [](const v1::RunStatus& run) { return If(run.has_validation(), run.validation_loss()); }},
    {"longhaul_run_clean_validation_loss", kGauge,
     "Newest validation loss in nats a token, with boundaries in fp32.",
     [](const v1::RunStatus& run) {
       return If(run.has_clean_validation_loss(), run.clean_validation_loss());
     }},
    {"longhaul_run_replicas", kGauge, "Replicas of the pipeline that train.",
     [](const v1::RunStatus& run) -> Value { return run.replicas(); }},
    {"longhaul_run_replicas_wanted", kGauge, "Replicas of the pipeline that are wanted.",
     [](const v1::RunStatus& run) -> Value { return run.replicas_wanted(); }},
    {"longhaul_run_checkpoint_step", kGauge, "Step of the newest committed checkpoint.",
     [](const v1::RunStatus& run) -> Value { return run.checkpoint_step(); }},
    {"longhaul_run_checkpoint_timestamp_seconds", kGauge,
     "When the newest checkpoint was committed, in Unix time.",
     [](const v1::RunStatus& run) {
       return If(run.checkpoint_unix_ms() > 0, static_cast<double>(run.checkpoint_unix_ms()) / 1e3);
     }},
    {"longhaul_run_copied_step", kGauge, "Step of the newest checkpoint that is held twice.",
     [](const v1::RunStatus& run) -> Value { return run.copied_step(); }},
    {"longhaul_run_copied_timestamp_seconds", kGauge,
     "When the newest checkpoint that is held twice was committed, in Unix time.",
     [](const v1::RunStatus& run) {
       return If(run.copied_unix_ms() > 0, static_cast<double>(run.copied_unix_ms()) / 1e3);
     }},
    {"longhaul_run_started_timestamp_seconds", kGauge, "When the run began to train, in Unix time.",
     [](const v1::RunStatus& run) {
       return If(run.started_unix_ms() > 0, static_cast<double>(run.started_unix_ms()) / 1e3);
     }},
};

// The value, for a stage whose worker has reported a step.
Value Reported(const v1::StageStatus& stage, double value) {
  return If(stage.step() > 0, value);
}

constexpr Row<v1::StageStatus> kStageRows[] = {
    {"longhaul_stage_connected", kGauge, "1 where the worker of the stage is connected.",
     [](const v1::StageStatus& stage) -> Value { return stage.connected() ? 1 : 0; }},
    {"longhaul_stage_step", kGauge, "Last step that the stage has reported.",
     [](const v1::StageStatus& stage) -> Value { return stage.step(); }},
    {"longhaul_stage_layers", kGauge, "Transformer blocks of the stage.",
     [](const v1::StageStatus& stage) -> Value { return stage.layers(); }},
    {"longhaul_stage_depth", kGauge, "Microbatches that the stage may have in flight.",
     [](const v1::StageStatus& stage) -> Value { return stage.depth(); }},
    {"longhaul_stage_codec_ratio", kGauge,
     "Time of the codec thread over the time of the last step; beside compute.",
     [](const v1::StageStatus& stage) { return Reported(stage, stage.codec_share()); }},
    {"longhaul_stage_egress_ratio", kGauge,
     "What the stage sent in the last step, of the rate that the plan counts with.",
     [](const v1::StageStatus& stage) {
       return If(stage.has_egress_share(), stage.egress_share());
     }},
    {"longhaul_stage_ingress_ratio", kGauge,
     "What came to the stage in the last step, of the rate that the plan counts with.",
     [](const v1::StageStatus& stage) {
       return If(stage.has_ingress_share(), stage.ingress_share());
     }},
    {"longhaul_stage_collective_ratio", kGauge,
     "Time inside collectives of the stage's ranks, of the last step.",
     [](const v1::StageStatus& stage) {
       return If(stage.has_collective_share(), stage.collective_share());
     }},
};

struct Part {
  std::string_view name;
  double (*share)(const v1::StageStatus& stage);
};
// They add up to the step.
constexpr Part kParts[] = {
    {"compute", [](const v1::StageStatus& stage) { return stage.compute_share(); }},
    {"optimizer", [](const v1::StageStatus& stage) { return stage.optimizer_share(); }},
    {"wait_input", [](const v1::StageStatus& stage) { return stage.wait_input_share(); }},
    {"wait_gradient", [](const v1::StageStatus& stage) { return stage.wait_gradient_share(); }},
    {"wait_codec", [](const v1::StageStatus& stage) { return stage.codec_wait_share(); }},
};

constexpr Row<v1::LinkStatus> kLinkRows[] = {
    {"longhaul_link_goodput_bytes_per_second", kGauge, "Payload over the time of the last step.",
     [](const v1::LinkStatus& link) -> Value { return link.goodput_bits_per_second() / 8; }},
    {"longhaul_link_rate_bytes_per_second", kGauge,
     "Goodput that the plan counts with, as it was measured.",
     [](const v1::LinkStatus& link) {
       return If(link.rate_bits_per_second() > 0, link.rate_bits_per_second() / 8);
     }},
    {"longhaul_link_busy_ratio", kGauge, "Part of the last step with something to send.",
     [](const v1::LinkStatus& link) -> Value { return link.busy_share(); }},
    {"longhaul_link_rate_ratio", kGauge,
     "Bytes of the last step over what the measured rate would have carried in it.",
     [](const v1::LinkStatus& link) {
       return If(link.rate_bits_per_second() > 0, link.bound_share());
     }},
    {"longhaul_link_step_payload_bytes", kGauge, "Payload of the last step.",
     [](const v1::LinkStatus& link) -> Value { return static_cast<double>(link.payload_bytes()); }},
    {"longhaul_link_healthy", kGauge, "0 while the link is suspect or lost.",
     [](const v1::LinkStatus& link) -> Value { return link.state() == "healthy" ? 1 : 0; }},
};

constexpr Row<v1::WorkerStatus> kWorkerRows[] = {
    {"longhaul_coordinator_worker_connected", kGauge, "1 where the worker has a session.",
     [](const v1::WorkerStatus& worker) -> Value { return worker.connected() ? 1 : 0; }},
    {"longhaul_coordinator_worker_sessions_total", kCounter,
     "Sessions that the worker has begun since the coordinator knows it.",
     [](const v1::WorkerStatus& worker) -> Value { return worker.sessions(); }},
    {"longhaul_coordinator_worker_busy", kGauge, "1 where a run has reserved the worker.",
     [](const v1::WorkerStatus& worker) -> Value { return worker.run_id().empty() ? 0 : 1; }},
    {"longhaul_coordinator_worker_heartbeat_age_seconds", kGauge,
     "Time since the coordinator last heard of the worker.",
     [](const v1::WorkerStatus& worker) -> Value { return worker.last_heartbeat_seconds(); }},
    {"longhaul_coordinator_worker_memory_used_bytes", kGauge,
     "Host memory of the worker's process, as its last heartbeat says.",
     [](const v1::WorkerStatus& worker) -> Value {
       return static_cast<double>(worker.memory_used_bytes());
     }},
    {"longhaul_coordinator_worker_losses", kGauge,
     "How often the worker was lost for its own fault, in a row, within minutes.",
     [](const v1::WorkerStatus& worker) -> Value { return worker.losses(); }},
    {"longhaul_coordinator_worker_left_out_seconds", kGauge,
     "How long runs are still planned without the worker.",
     [](const v1::WorkerStatus& worker) -> Value { return worker.left_out_seconds(); }},
    {"longhaul_coordinator_worker_cut_off", kGauge,
     "Connected workers with which this one cannot talk.",
     [](const v1::WorkerStatus& worker) -> Value { return worker.cannot_talk_to_size(); }},
    {"longhaul_coordinator_worker_clock_ahead_seconds", kGauge,
     "How far the worker's clock was ahead of the coordinator's when it joined.",
     [](const v1::WorkerStatus& worker) -> Value { return worker.clock_ahead_seconds(); }},
};

constexpr Row<v1::MeasuredLink> kMeasuredRows[] = {
    {"longhaul_measured_link_goodput_bytes_per_second", kGauge,
     "Goodput between two workers, as it was measured before a run.",
     [](const v1::MeasuredLink& link) {
       return If(link.goodput_bits_per_second() > 0, link.goodput_bits_per_second() / 8);
     }},
    {"longhaul_measured_link_round_trip_seconds", kGauge,
     "Shortest round trip between two workers, as it was measured before a run.",
     [](const v1::MeasuredLink& link) -> Value { return link.round_trip_seconds(); }},
    {"longhaul_measured_link_age_seconds", kGauge, "Time since that was measured.",
     [](const v1::MeasuredLink& link) -> Value { return link.age_seconds(); }},
};

constexpr std::array<RunState, 9> kStates = {
    RunState::kQueued,  RunState::kPlanning,  RunState::kPreparing,
    RunState::kRunning, RunState::kFinishing, RunState::kDone,
    RunState::kStopped, RunState::kFailed,    RunState::kRecovering};

void AddOne(Page* page, Kind kind, std::string_view name, std::string_view help, double value) {
  AddFamily(page, kind, name, help).samples.push_back({{}, value});
}

// Who leads, and what the other coordinator and the witness are known to have.
void AddLeadership(Page* page, const v1::LeadershipInfo& leadership) {
  using Standby = v1::LeadershipInfo::Standby;
  AddOne(page, kGauge, "longhaul_coordinator_term",
         "Grows each time that a coordinator begins to lead.",
         static_cast<double>(leadership.term()));
  AddOne(page, kGauge, "longhaul_coordinator_sure",
         "1 while the coordinator knows that it leads, and takes changes; else 0.",
         leadership.sure() ? 1 : 0);
  const Standby& standby = leadership.standby();
  const bool ever = standby.state() != Standby::NONE;
  const auto add_of_standby = [&](std::string_view name, std::string_view help, double value) {
    Family& family = AddFamily(page, kGauge, name, help);
    if (ever) family.samples.push_back({{}, value});
  };
  add_of_standby(
      "longhaul_coordinator_standby_following",
      "1 while a standby has all that the coordinator has; none where there never was one.",
      standby.state() == Standby::IN_SYNC ? 1 : 0);
  add_of_standby("longhaul_coordinator_standby_behind_changes",
                 "Changes that the standby lacks so far; none where there never was one.",
                 static_cast<double>(standby.behind_changes()));
  Family& heard =
      AddFamily(page, kGauge, "longhaul_coordinator_witness_heard_seconds",
                "Since the witness was heard; none without a witness, or before the first time.");
  if (!leadership.witness().name().empty() && leadership.witness().heard_seconds() >= 0) {
    heard.samples.push_back({{}, leadership.witness().heard_seconds()});
  }
}

void AddCoordinator(Page* page, const Reading& reading) {
  AddFamily(page, kGauge, "longhaul_coordinator_info", "1, with the version.", {"version"})
      .samples.push_back({{reading.version}, 1});
  AddLeadership(page, reading.leadership);
  const ShellUse& use = reading.use;
  AddOne(page, kGauge, "longhaul_coordinator_sessions", "Streams of workers that are open.",
         static_cast<double>(use.sessions));
  AddOne(page, kGauge, "longhaul_coordinator_events_waiting",
         "Messages and calls that wait for the state machine.",
         static_cast<double>(use.events_waiting));
  AddOne(page, kCounter, "longhaul_coordinator_ticks_total", "Ticks of the state machine.",
         static_cast<double>(use.ticks));
  AddOne(page, kCounter, "longhaul_coordinator_tick_seconds_total",
         "Time in ticks and in the store's transactions.", use.tick_seconds);
  AddOne(page, kGauge, "longhaul_coordinator_store_bytes", "Size of the store with its log.",
         static_cast<double>(reading.store_bytes));
  AddOne(page, kGauge, "longhaul_coordinator_store_damaged",
         "1 if the newest look through the store, each day, has found damage; else 0.",
         reading.leadership.store_damaged() ? 1 : 0);
  Family& computed = AddFamily(page, kCounter, "longhaul_coordinator_computations_total",
                               "What the planner has computed.", {"kind"});
  computed.samples = {{{"plan"}, static_cast<double>(use.planner.plans)},
                      {{"retune"}, static_cast<double>(use.planner.retunes)}};
  Family& planner = AddFamily(page, kCounter, "longhaul_coordinator_computation_seconds_total",
                              "Time that the planner took for that.", {"kind"});
  planner.samples = {{{"plan"}, use.planner.plan_seconds},
                     {{"retune"}, use.planner.retune_seconds}};
  Family& faults = AddFamily(page, kCounter, "longhaul_coordinator_faults_total",
                             "What went wrong since the coordinator started.", {"kind"});
  for (size_t kind = 0; kind < kFaultNames.size(); ++kind) {
    faults.samples.push_back(
        {{std::string(kFaultNames[kind])}, static_cast<double>(reading.faults.counts[kind])});
  }
}

void AddRuns(Page* page, const std::vector<v1::RunStatus>& runs) {
  std::vector<Labelled<v1::RunStatus>> labelled;
  Family& states =
      AddFamily(page, kGauge, "longhaul_run_state",
                "1 for the state in which the run is, 0 for the others.", {"run", "state"});
  for (const v1::RunStatus& run : runs) {
    labelled.push_back({{run.run_id()}, &run});
    for (const RunState state : kStates) {
      states.samples.push_back({{run.run_id(), std::string(ToString(state))},
                                run.state() == ToString(state) ? 1.0 : 0.0});
    }
  }
  AddRows<v1::RunStatus>(page, kRunRows, {"run"}, labelled);
}

void AddStages(Page* page, const std::vector<v1::RunStatus>& runs) {
  std::vector<Labelled<v1::StageStatus>> stages;
  for (const v1::RunStatus& run : runs) {
    for (const v1::StageStatus& stage : run.stages()) {
      stages.push_back({{run.run_id(), std::to_string(stage.replica()),
                         std::to_string(stage.stage()), stage.worker_name()},
                        &stage});
    }
  }
  AddRows<v1::StageStatus>(page, kStageRows, {"run", "replica", "stage", "worker"}, stages);
  Family& parts = AddFamily(page, kGauge, "longhaul_stage_step_ratio",
                            "Parts of the stage's last step; they add up to 1.",
                            {"run", "replica", "stage", "worker", "part"});
  for (const Labelled<v1::StageStatus>& one : stages) {
    if (one.thing->step() == 0) continue;
    for (const Part& part : kParts) {
      metrics::Sample sample{one.labels, part.share(*one.thing)};
      sample.labels.emplace_back(part.name);
      parts.samples.push_back(std::move(sample));
    }
  }
}

void AddLinks(Page* page, const Reading& reading) {
  std::vector<Labelled<v1::LinkStatus>> links;
  std::set<std::pair<std::string_view, std::string_view>> used;
  for (const v1::RunStatus& run : reading.runs) {
    for (const v1::LinkStatus& link : run.links()) {
      links.push_back({{run.run_id(), std::to_string(link.edge()), link.from_worker(),
                        link.to_worker(), link.direction(), link.kind(), link.codec()},
                       &link});
      used.emplace(link.from_worker(), link.to_worker());
    }
  }
  AddRows<v1::LinkStatus>(page, kLinkRows,
                          {"run", "edge", "from", "to", "direction", "kind", "codec"}, links);
  std::vector<Labelled<v1::MeasuredLink>> measured;
  for (const v1::MeasuredLink& link : reading.links) {
    if (!used.contains({link.from_worker(), link.to_worker()})) continue;
    measured.push_back({{link.from_worker(), link.to_worker(), link.transport()}, &link});
  }
  AddRows<v1::MeasuredLink>(page, kMeasuredRows, {"from", "to", "transport"}, measured);
}

void AddWorkers(Page* page, const std::vector<v1::WorkerStatus>& workers) {
  std::vector<Labelled<v1::WorkerStatus>> labelled;
  // Two workers may have one name, so the id is a label too.
  for (const v1::WorkerStatus& worker : workers) {
    labelled.push_back({{worker.name(), worker.worker_id()}, &worker});
  }
  AddRows<v1::WorkerStatus>(page, kWorkerRows, {"worker", "worker_id"}, labelled);
}

uint64_t StoreBytes(const std::string& state_dir) {
  uint64_t bytes = 0;
  for (const char* file : {"/store.db", "/store.db-wal"}) {
    std::error_code error;
    const uintmax_t size = std::filesystem::file_size(state_dir + file, error);
    if (!error) bytes += size;
  }
  return bytes;
}

}  // namespace

Reading Read(const Shell& shell, const LeadershipSource& leads, const std::string& state_dir,
             const std::string& version) {
  Reading reading;
  reading.runs = shell.Read([&](const Views& views) {
    return views
        .ListRuns({.ended_since_unix_ms = UnixMsNow() - absl::ToInt64Milliseconds(kShownAfterEnd),
                   .links_of_ended = true})
        .runs;
  });
  reading.workers = shell.Read([&](const Views& views) { return views.Workers(Now()); });
  reading.links = shell.Read([&](const Views& views) { return views.Links(Now()); });
  reading.faults = shell.Read([&](const Views& views) { return views.faults(); });
  reading.use = shell.Use();
  reading.store_bytes = StoreBytes(state_dir);
  reading.version = version;
  if (leads) reading.leadership = leads();
  return reading;
}

Page PageOf(const Reading& reading) {
  Page page;
  AddCoordinator(&page, reading);
  AddRuns(&page, reading.runs);
  AddStages(&page, reading.runs);
  AddLinks(&page, reading);
  AddWorkers(&page, reading.workers);
  return page;
}

}  // namespace longhaul::coordinator
