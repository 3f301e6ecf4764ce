#include "coordinator/http/api.h"

#include <fmt/core.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/http/timeline.h"
#include "coordinator/view/json.h"

namespace longhaul::coordinator {
namespace {

using nlohmann::ordered_json;

constexpr absl::Duration kQuickAge = absl::Milliseconds(200);
constexpr absl::Duration kSlowAge = absl::Seconds(1);

std::string Dump(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// What a list shows of a run, of which there may be thousands.
ordered_json RunRow(const v1::RunStatus& run) {
  ordered_json row = {{"run_id", run.run_id()},
                      {"name", run.name()},
                      {"state", run.state()},
                      {"owner", run.owner()},
                      {"step", run.step()},
                      {"steps", run.steps()},
                      {"loss", run.loss()},
                      {"submitted_unix_ms", run.submitted_unix_ms()},
                      {"replayed", !run.replay_source().empty()}};
  return row;
}

std::string KindsOf(const v1::WorkerStatus& worker) {
  std::map<std::string, int> counts;
  for (const v1::Device& device : worker.devices()) {
    ++counts[device.name().empty() ? device.kind() : device.name()];
  }
  std::string text;
  for (const auto& [name, count] : counts) {
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ",
                        count > 1 ? fmt::format("{} x ", count) : "", name);
  }
  return text;
}

ordered_json WorkerJson(const v1::WorkerStatus& worker) {
  uint64_t memory = 0;
  for (const v1::Device& device : worker.devices()) memory += device.memory_bytes();
  ordered_json cut = ordered_json::array();
  for (const v1::UnreachableWorker& peer : worker.cannot_talk_to()) {
    cut.push_back(
        {{"worker", peer.worker()}, {"transport", peer.transport()}, {"problem", peer.problem()}});
  }
  ordered_json transports = ordered_json::array();
  for (const v1::DataEndpoint& endpoint : worker.endpoints()) {
    transports.push_back(endpoint.transport());
  }
  ordered_json json = {{"name", worker.name()},
                       {"connected", worker.connected()},
                       {"host", worker.host()},
                       {"devices", KindsOf(worker)},
                       {"memory_bytes", memory},
                       {"memory_used_bytes", worker.memory_used_bytes()},
                       {"transports", std::move(transports)},
                       {"version", worker.version()},
                       {"run", worker.run_id()},
                       {"cell", nullptr},
                       {"spare", worker.spare()},
                       {"link_quality", worker.link_quality()},
                       {"losses", worker.losses()},
                       {"left_out_seconds", worker.left_out_seconds()},
                       {"can_talk_to", worker.can_talk_to()},
                       {"cannot_talk_to", std::move(cut)}};
  if (worker.has_cell()) {
    json["cell"] = {{"replica", worker.cell().replica()}, {"stage", worker.cell().stage()}};
  }
  return json;
}

}  // namespace

StatusOr<std::string> Remembered::Get(const std::string& key,
                                      const std::function<StatusOr<std::string>()>& make) {
  std::shared_ptr<Entry> entry;
  {
    const std::lock_guard lock(mutex_);
    // Whoever holds one of them goes on with it.
    if (entries_.size() >= kMost && !entries_.contains(key)) entries_.clear();
    std::shared_ptr<Entry>& kept = entries_[key];
    if (kept == nullptr) kept = std::make_shared<Entry>();
    entry = kept;
  }
  const std::lock_guard lock(entry->mutex);
  if (!entry->made || Now() - *entry->made > age_) {
    entry->text = make();
    entry->made = Now();
  }
  return entry->text;
}

Api::Api(Source* source, std::string version)
    : source_(source),
      version_(std::move(version)),
      curves_([source](const RunId& run, uint64_t step, size_t limit) {
        return source->Steps(run, step, limit);
      }),
      quick_(kQuickAge),
      slow_(kSlowAge) {}

StatusOr<std::string> Api::Seen(const std::string& run, const Viewer& viewer) {
  if (viewer.all) return run;
  LH_ASSIGN_OR_RETURN(const v1::RunStatus found, source_->Run(run));
  if (found.owner() == viewer.name) return found.run_id();
  return NotFound("{} has no run '{}'", viewer.name, run);
}

StatusOr<std::string> Api::Overview(const Viewer& viewer) {
  const std::string key = viewer.all ? "overview" : "overview of " + viewer.name;
  return quick_.Get(key, [this, &viewer]() -> StatusOr<std::string> {
    LH_ASSIGN_OR_RETURN(const std::string counts, slow_.Get("counts", [this] {
      uint32_t connected = 0, known = 0;
      for (const v1::WorkerStatus& worker : source_->Workers()) {
        ++known;
        connected += worker.connected() ? 1 : 0;
      }
      return StatusOr<std::string>(
          fmt::format(R"({{"connected":{},"known":{}}})", connected, known));
    }));
    std::string text = fmt::format(R"({{"version":{},"workers":{},"runs":[)",
                                   ordered_json(version_).dump(), counts);
    const std::vector<v1::RunStatus> runs = source_->Runs();
    std::string_view separator = "";
    for (const v1::RunStatus& run : runs) {
      if (!viewer.all && run.owner() != viewer.name) continue;
      text += std::exchange(separator, ",");
      text += Dump(RunRow(run));
    }
    return text + "]}";
  });
}

StatusOr<std::string> Api::Run(const std::string& named, const Viewer& viewer) {
  LH_ASSIGN_OR_RETURN(const std::string run, Seen(named, viewer));
  return quick_.Get("run " + run, [&]() -> StatusOr<std::string> {
    LH_ASSIGN_OR_RETURN(v1::RunStatus status, source_->Run(run));
    ordered_json edges = ordered_json::array();
    const auto cell = [](const v1::CellId& id) { return ordered_json{id.replica(), id.stage()}; };
    for (const v1::Edge& edge : status.plan().assignment().edges()) {
      edges.push_back({{"edge", edge.id()},
                       {"from", cell(edge.from())},
                       {"to", cell(edge.to())},
                       {"transport", edge.transport()}});
    }
    v1::Prediction prediction = status.plan().prediction();
    prediction.clear_cells();
    prediction.clear_edges();
    const std::string explanation = status.plan().explanation();
    status.clear_plan();
    return fmt::format(R"({{"run":{},"edges":{},"prediction":{},"explanation":{}}})",
                       ToJson(status, false), Dump(edges), ToJson(prediction, false),
                       Dump(explanation));
  });
}

StatusOr<std::string> Api::Steps(const std::string& named, const CurveWindow& window,
                                 const Viewer& viewer) {
  LH_ASSIGN_OR_RETURN(const std::string run, Seen(named, viewer));
  const std::string key =
      fmt::format("steps {} {} {} {}", run, window.first, window.last, window.points);
  return quick_.Get(key, [&]() -> StatusOr<std::string> {
    LH_ASSIGN_OR_RETURN(const v1::RunStatus status, source_->Run(run));
    LH_ASSIGN_OR_RETURN(const std::vector<Curve> curves, curves_.Of(status, window));
    return CurvesJson(status, curves);
  });
}

StatusOr<std::string> Api::Workers() {
  return slow_.Get("workers", [this]() -> StatusOr<std::string> {
    ordered_json workers = ordered_json::array(), links = ordered_json::array();
    for (const v1::WorkerStatus& worker : source_->Workers()) {
      workers.push_back(WorkerJson(worker));
    }
    for (const v1::MeasuredLink& link : source_->Links()) {
      links.push_back({{"from", link.from_worker()},
                       {"to", link.to_worker()},
                       {"transport", link.transport()},
                       {"goodput_bits_per_second", link.goodput_bits_per_second()},
                       {"round_trip_seconds", link.round_trip_seconds()}});
    }
    return Dump({{"workers", std::move(workers)}, {"links", std::move(links)}});
  });
}

StatusOr<std::string> Api::Events(const std::string& named, uint64_t after, const Viewer& viewer) {
  std::string id;
  if (named.empty() && !viewer.all) {
    return PermissionDenied("{} may not see events of all runs; name one with run=", viewer.name);
  }
  if (!named.empty()) {
    LH_ASSIGN_OR_RETURN(const std::string run, Seen(named, viewer));
    LH_ASSIGN_OR_RETURN(const v1::RunStatus status, source_->Run(run));
    id = status.run_id();
  }
  LH_ASSIGN_OR_RETURN(const std::vector<v1::Event> events,
                      source_->NewestEvents(id, after, kEvents));
  std::string text = R"({"events":[)";
  for (const v1::Event& event : events) {
    if (&event != &events.front()) text += ',';
    text += ToJson(event, false);
  }
  return text + "]}";
}

StatusOr<std::string> Api::Checkpoints(const std::string& named, const Viewer& viewer) {
  LH_ASSIGN_OR_RETURN(const std::string run, Seen(named, viewer));
  return slow_.Get("checkpoints " + run, [&]() -> StatusOr<std::string> {
    LH_ASSIGN_OR_RETURN(const v1::CheckpointsReply reply,
                        source_->Checkpoints(run, Deadline::After(kPatience)));
    return ToJson(reply, false);
  });
}

StatusOr<std::string> Api::Timeline(const std::string& named, const Viewer& viewer) {
  LH_ASSIGN_OR_RETURN(const std::string run, Seen(named, viewer));
  return slow_.Get("timeline " + run, [&]() -> StatusOr<std::string> {
    LH_ASSIGN_OR_RETURN(const v1::TraceReply reply,
                        source_->Trace(run, Deadline::After(kPatience)));
    return TimelineJson(reply);
  });
}

}  // namespace longhaul::coordinator
