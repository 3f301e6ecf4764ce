#include "worker/epoch/worker_metrics.h"

#include <array>
#include <string_view>
#include <utility>

namespace longhaul::worker {
namespace {

using metrics::AddFamily;
using metrics::AddRows;
using metrics::Family;
using metrics::Kind;
using metrics::Labelled;
using metrics::Page;
using metrics::Row;

using Value = std::optional<double>;

constexpr Kind kGauge = Kind::kGauge;
constexpr Kind kCounter = Kind::kCounter;

constexpr std::array<std::string_view, 5> kLinkStates = {"suspect", "healthy", "lost", "healed",
                                                         "forgotten"};
constexpr std::array<std::string_view, 3> kFaults = {"error", "hung", "device_lost"};

double Count(uint64_t count) {
  return static_cast<double>(count);
}

constexpr Row<LinkReading> kLinkRows[] = {
    {"longhaul_worker_link_frames_sent_total", kCounter,
     "Frames that were sent for the first time.",
     [](const LinkReading& link) -> Value { return Count(link.stats.frames_sent); }},
    {"longhaul_worker_link_frames_received_total", kCounter, "Frames that came for the first time.",
     [](const LinkReading& link) -> Value { return Count(link.stats.frames_received); }},
    {"longhaul_worker_link_sent_bytes_total", kCounter,
     "Bytes sent, with headers and heartbeats of the link.",
     [](const LinkReading& link) -> Value { return Count(link.stats.link_bytes_sent); }},
    {"longhaul_worker_link_received_bytes_total", kCounter,
     "Bytes received, with headers and heartbeats of the link.",
     [](const LinkReading& link) -> Value { return Count(link.stats.link_bytes_received); }},
    {"longhaul_worker_link_frames_resent_total", kCounter,
     "Frames that were sent again on a new connection.",
     [](const LinkReading& link) -> Value { return Count(link.stats.frames_resent); }},
    {"longhaul_worker_link_frames_repeated_total", kCounter,
     "Frames that came again, and were dropped.",
     [](const LinkReading& link) -> Value { return Count(link.stats.frames_repeated); }},
    {"longhaul_worker_link_reconnects_total", kCounter, "Connections after the first.",
     [](const LinkReading& link) -> Value { return Count(link.stats.reconnects); }},
    {"longhaul_worker_link_frames_waiting", kGauge,
     "Frames that were handed to the link and that the peer has not taken yet.",
     [](const LinkReading& link) -> Value { return Count(link.stats.frames_waiting); }},
    {"longhaul_worker_link_credit_frames", kGauge,
     "Bulk frames that the peer might have under way to this side when the link opened.",
     [](const LinkReading& link) -> Value { return link.credits; }},
    {"longhaul_worker_link_no_credit_seconds_total", kCounter,
     "Time with frames that waited for credit.",
     [](const LinkReading& link) -> Value {
       return absl::ToDoubleSeconds(link.stats.credit_wait);
     }},
    {"longhaul_worker_link_longest_silence_seconds", kGauge,
     "Longest time between two signs of life of the peer.",
     [](const LinkReading& link) -> Value {
       return absl::ToDoubleSeconds(link.stats.longest_silence);
     }},
    {"longhaul_worker_link_planned_bytes_per_second", kGauge,
     "Goodput of what is sent, as the plan took it from a measurement.",
     [](const LinkReading& link) -> Value {
       if (!(link.planned_bits_per_second > 0)) return std::nullopt;
       return link.planned_bits_per_second / 8;
     }},
};

constexpr Row<v1::StepReport> kReportRows[] = {
    {"longhaul_worker_step", kGauge, "Last step that the stage has finished.",
     [](const v1::StepReport& last) -> Value { return Count(last.step()); }},
    {"longhaul_worker_last_step_seconds", kGauge, "Time of the last step.",
     [](const v1::StepReport& last) -> Value { return last.seconds(); }},
    {"longhaul_worker_loss", kGauge, "Training loss of the last step; at the last stage.",
     [](const v1::StepReport& last) -> Value {
       return last.has_loss() ? Value(last.loss()) : std::nullopt;
     }},
    {"longhaul_worker_gradient_norm", kGauge,
     "Gradient norm of the last step over all stages, before clipping; at the first stage.",
     [](const v1::StepReport& last) -> Value {
       return last.has_norm() ? Value(last.gradient_norm()) : std::nullopt;
     }},
    {"longhaul_worker_stage_squared_norm", kGauge,
     "The stage's own part of the squared gradient norm of the last step.",
     [](const v1::StepReport& last) -> Value { return last.squared_norm(); }},
    {"longhaul_worker_learning_rate", kGauge, "Learning rate of the last step; at the first stage.",
     [](const v1::StepReport& last) -> Value {
       return last.has_norm() ? Value(last.learning_rate()) : std::nullopt;
     }},
    {"longhaul_worker_microbatches_in_flight_peak", kGauge,
     "Most microbatches that were in flight at a time in the last step.",
     [](const v1::StepReport& last) -> Value { return last.peak_in_flight(); }},
    {"longhaul_worker_norm_wait_seconds", kGauge,
     "Time from having sent the norm to the word of the first stage, in the last step.",
     [](const v1::StepReport& last) -> Value { return last.norm_wait_seconds(); }},
};

void AddOne(Page* page, Kind kind, std::string_view name, std::string_view help, double value) {
  AddFamily(page, kind, name, help).samples.push_back({{}, value});
}

}  // namespace

WorkerMetrics::WorkerMetrics(std::string version, std::vector<v1::Device> devices)
    : version_(std::move(version)), devices_(std::move(devices)) {
  for (const std::string_view state : kLinkStates) link_events_.emplace(state, 0);
  for (const std::string_view kind : kFaults) faults_.emplace(kind, 0);
}

void WorkerMetrics::Note(const v1::WorkerMessage& message) {
  const std::lock_guard lock(mutex_);
  if (!message.run_id().empty() && message.run_id() != run_.run &&
      (message.has_step() || message.has_stage_ready())) {
    run_ = RunTotals();
    run_.run = message.run_id();
  }
  switch (message.body_case()) {
    case v1::WorkerMessage::kStep:
      NoteStep(message.step());
      break;
    case v1::WorkerMessage::kShard:
      if (!message.shard().problem().empty()) {
        ++run_.checkpoint_problems;
        break;
      }
      ++run_.checkpoints;
      run_.checkpoint_step = message.shard().step();
      break;
    case v1::WorkerMessage::kLink: {
      // Only states that are known: labels stay few.
      const auto known = link_events_.find(message.link().state());
      if (known != link_events_.end()) ++known->second;
      break;
    }
    case v1::WorkerMessage::kError:
      switch (message.error().restarts_for()) {
        case v1::WORKER_FAULT_HUNG:
          ++faults_["hung"];
          break;
        case v1::WORKER_FAULT_DEVICE_LOST:
          ++faults_["device_lost"];
          break;
        default:
          ++faults_["error"];
      }
      break;
    default:
      break;
  }
}

void WorkerMetrics::NoteStep(const v1::StepReport& report) {
  ++run_.steps;
  run_.steps_skipped += report.skipped() ? 1 : 0;
  run_.nonfinite_tiles += report.nonfinite_tiles();
  run_.seconds += report.seconds();
  run_.forward += report.forward_seconds();
  run_.backward += report.backward_seconds();
  run_.optimizer += report.optimizer_seconds();
  run_.wait_input += report.wait_input_seconds();
  run_.wait_gradient += report.wait_gradient_seconds();
  run_.wait_codec += report.codec_wait_seconds();
  run_.codec += report.codec_seconds();
  run_.collectives += report.collectives().seconds();
  for (const v1::LinkUse& use : report.links()) {
    EdgeTotals& edge = run_.edges[use.edge()];
    edge.payload_bytes_sent += use.payload_bytes_sent();
    edge.send_busy_seconds += use.send_busy_seconds();
  }
  run_.last = report;
}

Page WorkerMetrics::PageOf(const std::optional<StageReading>& stage, uint64_t memory_used_bytes,
                           uint64_t resident_bytes) const {
  Page page;
  AddFamily(&page, kGauge, "longhaul_worker_info", "1, with the version.", {"version"})
      .samples.push_back({{version_}, 1});
  AddOne(&page, kGauge, "longhaul_worker_memory_used_bytes", "Host memory of the process.",
         Count(memory_used_bytes));
  AddOne(&page, kGauge, "longhaul_worker_resident_stage_bytes",
         "Memory of a stage that stays for the next epoch; 0: there is none.",
         Count(resident_bytes));
  Family& memory =
      AddFamily(&page, kGauge, "longhaul_worker_device_memory_bytes",
                "Memory of a device that runs may be planned with.", {"device", "kind", "name"});
  for (size_t i = 0; i < devices_.size(); ++i) {
    memory.samples.push_back({{std::to_string(i), devices_[i].kind(), devices_[i].name()},
                              Count(devices_[i].memory_bytes())});
  }
  const std::lock_guard lock(mutex_);
  Family& events = AddFamily(&page, kCounter, "longhaul_worker_link_events_total",
                             "What links said of their health.", {"state"});
  for (const auto& [state, count] : link_events_) events.samples.push_back({{state}, Count(count)});
  Family& faults = AddFamily(&page, kCounter, "longhaul_worker_faults_total",
                             "Errors that ended the stage or the process.", {"kind"});
  for (const auto& [kind, count] : faults_) faults.samples.push_back({{kind}, Count(count)});
  AddStage(&page, stage);
  return page;
}

void WorkerMetrics::AddStage(Page* page, const std::optional<StageReading>& stage) const {
  const bool is_of_run = stage && stage->run.value() == run_.run;
  std::vector<std::string> cell;
  if (stage) {
    cell = {stage->run.value(), std::to_string(stage->cell.replica),
            std::to_string(stage->cell.stage)};
  }
  const std::vector<std::string> names = {"run", "replica", "stage"};
  const auto add = [&](Kind kind, std::string_view name, std::string_view help, bool known,
                       double value) {
    Family& family = AddFamily(page, kind, name, help, names);
    if (known) family.samples.push_back({cell, value});
  };
  add(kGauge, "longhaul_worker_planned_memory_bytes", "Peak of the stage's memory as planned.",
      stage.has_value(), stage ? Count(stage->planned_memory_bytes) : 0);
  add(kGauge, "longhaul_worker_epoch", "Epoch of the stage at hand.", stage.has_value(),
      stage ? Count(stage->epoch.value()) : 0);
  add(kCounter, "longhaul_worker_steps_total", "Steps of the run that this worker has finished.",
      is_of_run, Count(run_.steps));
  add(kCounter, "longhaul_worker_steps_skipped_total",
      "Steps whose loss or norm was not finite, so that nothing was updated.", is_of_run,
      Count(run_.steps_skipped));
  add(kCounter, "longhaul_worker_step_seconds_total", "Time of all steps.", is_of_run,
      run_.seconds);
  add(kCounter, "longhaul_worker_codec_seconds_total", "Time of the codec thread, beside compute.",
      is_of_run, run_.codec);
  add(kCounter, "longhaul_worker_collective_seconds_total",
      "Time inside collectives of the stage's ranks, as far as it is known.", is_of_run,
      run_.collectives);
  add(kCounter, "longhaul_worker_nonfinite_tiles_total",
      "Tiles of boundary tensors with a value that is not finite.", is_of_run,
      Count(run_.nonfinite_tiles));
  add(kCounter, "longhaul_worker_checkpoints_total", "Snapshots that the stage has written.",
      is_of_run, Count(run_.checkpoints));
  add(kCounter, "longhaul_worker_checkpoint_problems_total",
      "Snapshots that the stage could not write.", is_of_run, Count(run_.checkpoint_problems));
  add(kGauge, "longhaul_worker_checkpoint_step", "Step of the newest snapshot that was written.",
      is_of_run && run_.checkpoints > 0, Count(run_.checkpoint_step));
  Family& parts =
      AddFamily(page, kCounter, "longhaul_worker_step_part_seconds_total",
                "Parts of the steps; they add up to longhaul_worker_step_seconds_total.",
                {"run", "replica", "stage", "part"});
  if (is_of_run) {
    const std::pair<std::string_view, double> values[] = {{"forward", run_.forward},
                                                          {"backward", run_.backward},
                                                          {"optimizer", run_.optimizer},
                                                          {"wait_input", run_.wait_input},
                                                          {"wait_gradient", run_.wait_gradient},
                                                          {"wait_codec", run_.wait_codec}};
    for (const auto& [part, seconds] : values) {
      metrics::Sample sample{cell, seconds};
      sample.labels.emplace_back(part);
      parts.samples.push_back(std::move(sample));
    }
  }
  std::vector<Labelled<v1::StepReport>> last;
  if (is_of_run && run_.last) last.push_back({cell, &*run_.last});
  AddRows<v1::StepReport>(page, kReportRows, names, last);
  AddLinks(page, stage ? stage->links : std::vector<LinkReading>(), cell, is_of_run);
}

void WorkerMetrics::AddLinks(Page* page, const std::vector<LinkReading>& links,
                             const std::vector<std::string>& cell, bool is_of_run) const {
  const std::vector<std::string> names = {"run", "edge", "kind", "peer", "codec", "transport"};
  std::vector<Labelled<LinkReading>> labelled;
  for (const LinkReading& link : links) {
    labelled.push_back({{cell.front(), std::to_string(link.edge.value()),
                         std::string(ToString(link.kind)), link.peer, link.codec, link.transport},
                        &link});
  }
  AddRows<LinkReading>(page, kLinkRows, names, labelled);
  struct OfSteps {
    std::string_view name, help;
    double (*value)(const EdgeTotals& totals);
  };
  constexpr OfSteps kOfSteps[] = {
      {"longhaul_worker_link_step_payload_bytes_total",
       "Encoded tensors and their headers that steps have sent.",
       [](const EdgeTotals& totals) { return Count(totals.payload_bytes_sent); }},
      {"longhaul_worker_link_send_busy_seconds_total", "Time of steps with something to send.",
       [](const EdgeTotals& totals) { return totals.send_busy_seconds; }},
  };
  for (const OfSteps& row : kOfSteps) {
    Family& family = AddFamily(page, kCounter, row.name, row.help, names);
    for (const Labelled<LinkReading>& one : labelled) {
      const auto totals = run_.edges.find(one.thing->edge.value());
      if (!is_of_run || totals == run_.edges.end()) continue;
      family.samples.push_back({one.labels, row.value(totals->second)});
    }
  }
}

}  // namespace longhaul::worker
