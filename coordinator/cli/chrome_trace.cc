#include "coordinator/cli/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace longhaul::cli {
namespace {

using nlohmann::json;

enum Group : int { kStages = 1, kCodecs = 2, kLinks = 3 };

// (step, microbatch) -> when, by the clock of its stage.
using Moments = std::map<std::pair<uint64_t, uint32_t>, int64_t>;

Moments Collect(const v1::StageTrace& stage, v1::Span::Kind kind, bool up, bool ends) {
  Moments moments;
  for (const v1::StepTrace& step : stage.steps()) {
    for (const v1::Span& span : step.spans()) {
      if (span.kind() != kind || span.up() != up) continue;
      moments[{step.step(), span.microbatch()}] =
          step.begin_ns() + span.begin_ns() + (ends ? span.length_ns() : 0);
    }
  }
  return moments;
}

std::optional<int64_t> Quickest(const Moments& sent, const Moments& received) {
  std::optional<int64_t> quickest;
  for (const auto& [key, at] : received) {
    const auto it = sent.find(key);
    if (it == sent.end()) continue;
    quickest = std::min(quickest.value_or(std::numeric_limits<int64_t>::max()), at - it->second);
  }
  return quickest;
}

// What to add to the lower stage's times.
int64_t OffsetBetween(const v1::StageTrace& upper, const v1::StageTrace& lower) {
  if (upper.clock_id() == lower.clock_id() && !upper.clock_id().empty()) return 0;
  const auto down = Quickest(Collect(upper, v1::Span::ENCODE, false, true),
                             Collect(lower, v1::Span::RECEIVE, true, false));
  const auto up = Quickest(Collect(lower, v1::Span::ENCODE, true, true),
                           Collect(upper, v1::Span::RECEIVE, false, false));
  if (!down || !up) return 0;
  return (*up - *down) / 2;
}

json NameRow(int group, uint32_t row, const std::string& name) {
  return {{"ph", "M"},
          {"name", "thread_name"},
          {"pid", group},
          {"tid", row},
          {"args", {{"name", name}}}};
}

json SortRow(int group, uint32_t row) {
  return {{"ph", "M"},
          {"name", "thread_sort_index"},
          {"pid", group},
          {"tid", row},
          {"args", {{"sort_index", row}}}};
}

class Writer {
 public:
  explicit Writer(const v1::TraceReply& trace) : trace_(trace), offsets_(ClockOffsetsNs(trace)) {}

  std::string Write() {
    zero_ns_ = std::numeric_limits<int64_t>::max();
    for (int i = 0; i < trace_.stages_size(); ++i) {
      for (const v1::StepTrace& step : trace_.stages(i).steps()) {
        zero_ns_ = std::min(zero_ns_, step.begin_ns() + offsets_[static_cast<size_t>(i)]);
      }
    }
    AddRows();
    for (int i = 0; i < trace_.stages_size(); ++i) AddStage(static_cast<uint32_t>(i));
    return json{{"displayTimeUnit", "ms"},
                {"otherData", {{"run", trace_.run_id()}}},
                {"traceEvents", std::move(events_)}}
               .dump() +
           "\n";
  }

 private:
  void AddRows() {
    for (const auto& [group, name] :
         {std::pair{kStages, "stages"}, std::pair{kCodecs, "codecs"}, std::pair{kLinks, "links"}}) {
      events_.push_back(
          {{"ph", "M"}, {"name", "process_name"}, {"pid", group}, {"args", {{"name", name}}}});
      events_.push_back({{"ph", "M"},
                         {"name", "process_sort_index"},
                         {"pid", group},
                         {"args", {{"sort_index", static_cast<int>(group)}}}});
    }
    const auto row = [this](int group, uint32_t index, const std::string& name) {
      events_.push_back(NameRow(group, index, name));
      events_.push_back(SortRow(group, index));
    };
    for (uint32_t stage = 0; stage < static_cast<uint32_t>(trace_.stages_size()); ++stage) {
      std::string name = fmt::format("stage {}", stage);
      if (stage < static_cast<uint32_t>(trace_.plan().stages_size())) {
        name += fmt::format(" ({})", trace_.plan().stages(static_cast<int>(stage)).worker_name());
      }
      row(kStages, stage, name);
      row(kCodecs, stage, fmt::format("codec of stage {}", stage));
    }
    for (const v1::LinkPlan& link : trace_.plan().links()) {
      const uint32_t b = link.boundary();
      row(kLinks, 2 * b, fmt::format("{} to {}: {}", b, b + 1, link.forward_codec()));
      row(kLinks, 2 * b + 1, fmt::format("{} to {}: {}", b + 1, b, link.backward_codec()));
    }
  }

  void AddStage(uint32_t stage) {
    for (const v1::StepTrace& step : trace_.stages(static_cast<int>(stage)).steps()) {
      const int64_t begin = step.begin_ns() + offsets_[stage];
      Add(kStages, stage, fmt::format("step {}", step.step()), "step", begin,
          step.end_ns() - step.begin_ns(), {{"step", step.step()}});
      for (const v1::Span& span : step.spans()) AddSpan(stage, step, span, begin);
    }
  }

  void AddSpan(uint32_t stage, const v1::StepTrace& step, const v1::Span& span, int64_t begin) {
    const uint32_t m = span.microbatch();
    const auto add = [&](int group, uint32_t row, const std::string& name, const char* category) {
      json arguments = {{"step", step.step()}, {"microbatch", m}};
      if (span.bytes() > 0) {
        arguments["bytes"] = span.bytes();
        if (span.length_ns() > 0) {
          arguments["Mbit/s"] =
              8e3 * static_cast<double>(span.bytes()) / static_cast<double>(span.length_ns());
        }
      }
      Add(group, row, name, category, begin + span.begin_ns(), span.length_ns(),
          std::move(arguments));
    };
    const char* const tensor = span.up() ? "activation" : "gradient";
    switch (span.kind()) {
      case v1::Span::FORWARD:
        return add(kStages, stage, fmt::format("F{}", m), "forward");
      case v1::Span::BACKWARD:
        return add(kStages, stage, fmt::format("B{}", m), "backward");
      case v1::Span::OPTIMIZER:
        return add(kStages, stage, "optimizer", "optimizer");
      case v1::Span::WAIT_INPUT:
        return add(kStages, stage, "wait for an activation", "wait");
      case v1::Span::WAIT_GRADIENT:
        return add(kStages, stage, "wait for a gradient", "wait");
      case v1::Span::ENCODE:
        return add(kCodecs, stage,
                   fmt::format("encode {} {}", span.up() ? "gradient" : "activation", m), "encode");
      case v1::Span::DECODE:
        return add(kCodecs, stage, fmt::format("decode {} {}", tensor, m), "decode");
      case v1::Span::RECEIVE:
        // From the stage above: over the boundary above it.
        if (span.up() && stage == 0) return;
        return add(kLinks, span.up() ? 2 * (stage - 1) : 2 * stage + 1,
                   fmt::format("{} {}", tensor, m), "transfer");
      default:
        return;  // of a newer worker
    }
  }

  void Add(int group, uint32_t row, const std::string& name, const char* category, int64_t begin_ns,
           int64_t length_ns, json arguments) {
    events_.push_back({{"ph", "X"},
                       {"name", name},
                       {"cat", category},
                       {"pid", group},
                       {"tid", row},
                       {"ts", static_cast<double>(begin_ns - zero_ns_) / 1e3},
                       {"dur", static_cast<double>(std::max<int64_t>(length_ns, 0)) / 1e3},
                       {"args", std::move(arguments)}});
  }

  const v1::TraceReply& trace_;
  const std::vector<int64_t> offsets_;
  int64_t zero_ns_ = 0;
  json events_ = json::array();
};

}  // namespace

std::vector<int64_t> ClockOffsetsNs(const v1::TraceReply& trace) {
  std::vector<int64_t> offsets;
  for (int i = 0; i < trace.stages_size(); ++i) {
    offsets.push_back(
        i == 0 ? 0 : offsets.back() + OffsetBetween(trace.stages(i - 1), trace.stages(i)));
  }
  return offsets;
}

std::string ToChromeTrace(const v1::TraceReply& trace) {
  return Writer(trace).Write();
}

}  // namespace longhaul::cli
