#include "coordinator/http/timeline.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/words.h"
#include "coordinator/view/chrome_trace.h"

namespace longhaul::coordinator {
namespace {

using nlohmann::ordered_json;

const v1::StepTrace* StepOf(const v1::StageTrace& stage, uint64_t step) {
  const auto found = std::ranges::find_if(
      stage.steps(), [&](const v1::StepTrace& one) { return one.step() == step; });
  return found == stage.steps().end() ? nullptr : &*found;
}

std::optional<uint64_t> NewestOfAll(const v1::TraceReply& trace) {
  std::optional<uint64_t> newest;
  if (trace.stages().empty()) return newest;
  for (const v1::StepTrace& step : trace.stages(0).steps()) {
    const bool all = std::ranges::all_of(trace.stages(), [&](const v1::StageTrace& stage) {
      return StepOf(stage, step.step()) != nullptr;
    });
    if (all) newest = std::max(newest.value_or(0), step.step());
  }
  return newest;
}

std::string_view NameOf(v1::Span::Kind kind) {
  return WordOf(kind,
                {"unknown", "forward", "backward", "optimizer", "wait_input", "wait_gradient",
                 "encode", "decode", "receive"},
                "unknown");
}

std::string WorkerOf(const v1::TraceReply& trace, const v1::CellId& id) {
  for (const v1::Cell& cell : trace.plan().assignment().cells()) {
    if (cell.id().stage() == id.stage() && cell.id().replica() == id.replica()) {
      return cell.worker_name();
    }
  }
  return "";
}

}  // namespace

std::string TimelineJson(const v1::TraceReply& trace) {
  ordered_json reply = {{"run", trace.run_id()},
                        {"step", nullptr},
                        {"length_us", 0},
                        {"stages", ordered_json::array()}};
  const std::optional<uint64_t> newest = NewestOfAll(trace);
  if (!newest) return reply.dump();
  const std::vector<int64_t> offsets = ClockOffsetsNs(trace);
  int64_t zero = std::numeric_limits<int64_t>::max();
  int64_t end = std::numeric_limits<int64_t>::min();
  for (int i = 0; i < trace.stages_size(); ++i) {
    const v1::StepTrace& step = *StepOf(trace.stages(i), *newest);
    zero = std::min(zero, step.begin_ns() + offsets[static_cast<size_t>(i)]);
    end = std::max(end, step.end_ns() + offsets[static_cast<size_t>(i)]);
  }
  for (int i = 0; i < trace.stages_size(); ++i) {
    const v1::StageTrace& stage = trace.stages(i);
    const v1::StepTrace& step = *StepOf(stage, *newest);
    const int64_t begin = step.begin_ns() + offsets[static_cast<size_t>(i)] - zero;
    ordered_json spans = ordered_json::array();
    for (const v1::Span& span : step.spans()) {
      spans.push_back({NameOf(span.kind()), (begin + span.begin_ns()) / 1000,
                       span.length_ns() / 1000, span.microbatch(), span.slice(), span.up()});
    }
    reply["stages"].push_back({{"replica", stage.cell().replica()},
                               {"stage", stage.cell().stage()},
                               {"worker", WorkerOf(trace, stage.cell())},
                               {"begin_us", begin / 1000},
                               {"length_us", (step.end_ns() - step.begin_ns()) / 1000},
                               {"spans", std::move(spans)}});
  }
  reply["step"] = *newest;
  reply["length_us"] = (end - zero) / 1000;
  return reply.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace longhaul::coordinator
