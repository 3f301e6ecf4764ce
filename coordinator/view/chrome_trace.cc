#include "coordinator/view/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "run/plan/proto/plan_proto.h"

namespace longhaul {
namespace {

using nlohmann::json;

enum Group : int { kStages = 1, kCodecs = 2, kLinks = 3 };

// (step, microbatch, slice) -> when, by the clock of its stage.
using Moments = std::map<std::tuple<uint64_t, uint32_t, uint32_t>, int64_t>;

Moments Collect(const v1::StageTrace& stage, v1::Span::Kind kind, bool up, bool ends) {
  Moments moments;
  for (const v1::StepTrace& step : stage.steps()) {
    for (const v1::Span& span : step.spans()) {
      if (span.kind() != kind || span.up() != up) continue;
      moments[{step.step(), span.microbatch(), span.slice()}] =
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
  explicit Writer(const v1::TraceReply& trace)
      : trace_(trace),
        assignment_(FromProto(trace.plan().assignment())),
        offsets_(ClockOffsetsNs(trace)) {}

  std::string Write() {
    zero_ns_ = std::numeric_limits<int64_t>::max();
    for (int i = 0; i < trace_.stages_size(); ++i) {
      for (const v1::StepTrace& step : trace_.stages(i).steps()) {
        zero_ns_ = std::min(zero_ns_, step.begin_ns() + offsets_[static_cast<size_t>(i)]);
      }
    }
    AddRows();
    for (int i = 0; i < trace_.stages_size(); ++i) AddStage(i);
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
    for (int i = 0; i < trace_.stages_size(); ++i) {
      const CellId id = FromProto(trace_.stages(i).cell());
      const Cell* const cell = assignment_.Find(id);
      const std::string name = ToString(id);
      row(kStages, RowOf(i),
          cell == nullptr ? name : fmt::format("{} ({})", name, cell->worker_name));
      row(kCodecs, RowOf(i), fmt::format("codec of {}", name));
    }
    for (const Edge& edge : assignment_.edges) {
      if (edge.kind != EdgeKind::kActivations) continue;
      const uint32_t from = edge.from.stage, to = edge.to.stage;
      row(kLinks, RowOf(edge, Direction::kForward),
          fmt::format("{} to {}: {}", from, to, ToString(edge.forward.codec)));
      row(kLinks, RowOf(edge, Direction::kBackward),
          fmt::format("{} to {}: {}", to, from, ToString(edge.backward.codec)));
    }
  }

  // Within the group.
  static uint32_t RowOf(int trace) { return static_cast<uint32_t>(trace); }
  uint32_t RowOf(const Edge& edge, Direction direction) const {
    const auto place = static_cast<uint32_t>(&edge - assignment_.edges.data());
    return 2 * place + (direction == Direction::kForward ? 0 : 1);
  }

  void AddStage(int index) {
    const v1::StageTrace& stage = trace_.stages(index);
    for (const v1::StepTrace& step : stage.steps()) {
      const int64_t begin = step.begin_ns() + offsets_[static_cast<size_t>(index)];
      Add(kStages, RowOf(index), fmt::format("step {}", step.step()), "step", begin,
          step.end_ns() - step.begin_ns(), {{"step", step.step()}});
      for (const v1::Span& span : step.spans()) AddSpan(index, step, span, begin);
    }
  }

  // Where what `cell` got from above, or from below, was on its way. nullopt: nobody is there.
  std::optional<uint32_t> RowOfReceived(const CellId& cell, bool from_above) const {
    const Edge* const edge = from_above ? assignment_.Incoming(cell, EdgeKind::kActivations)
                                        : assignment_.Outgoing(cell, EdgeKind::kActivations);
    if (edge == nullptr) return std::nullopt;
    return RowOf(*edge, from_above ? Direction::kForward : Direction::kBackward);
  }

  void AddSpan(int index, const v1::StepTrace& step, const v1::Span& span, int64_t begin) {
    const uint32_t stage = RowOf(index);
    // "3", or slice 1 of it: "3.1".
    const std::string what = assignment_.slices == 1
                                 ? fmt::format("{}", span.microbatch())
                                 : fmt::format("{}.{}", span.microbatch(), span.slice());
    const auto add = [&](int group, uint32_t row, const std::string& name, const char* category) {
      json arguments = {
          {"step", step.step()}, {"microbatch", span.microbatch()}, {"slice", span.slice()}};
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
        return add(kStages, stage, "F" + what, "forward");
      case v1::Span::BACKWARD:
        return add(kStages, stage, "B" + what, "backward");
      case v1::Span::OPTIMIZER:
        return add(kStages, stage, "optimizer", "optimizer");
      case v1::Span::WAIT_INPUT:
        return add(kStages, stage, "wait for an activation", "wait");
      case v1::Span::WAIT_GRADIENT:
        return add(kStages, stage, "wait for a gradient", "wait");
      case v1::Span::ENCODE:
        return add(kCodecs, stage,
                   fmt::format("encode {} {}", span.up() ? "gradient" : "activation", what),
                   "encode");
      case v1::Span::DECODE:
        return add(kCodecs, stage, fmt::format("decode {} {}", tensor, what), "decode");
      case v1::Span::RECEIVE:
        if (const auto row = RowOfReceived(FromProto(trace_.stages(index).cell()), span.up())) {
          add(kLinks, *row, fmt::format("{} {}", tensor, what), "transfer");
        }
        return;
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
  const Assignment assignment_;
  const std::vector<int64_t> offsets_;
  int64_t zero_ns_ = 0;
  json events_ = json::array();
};

}  // namespace

std::vector<int64_t> ClockOffsetsNs(const v1::TraceReply& trace) {
  const Assignment assignment = FromProto(trace.plan().assignment());
  std::map<CellId, int> traced;
  std::vector<int64_t> offsets;
  for (int i = 0; i < trace.stages_size(); ++i) {
    const CellId cell = FromProto(trace.stages(i).cell());
    traced[cell] = i;
    const Edge* const edge = assignment.Incoming(cell, EdgeKind::kActivations);
    const auto above = edge == nullptr ? traced.end() : traced.find(edge->from);
    offsets.push_back(above == traced.end()
                          ? 0
                          : offsets[static_cast<size_t>(above->second)] +
                                OffsetBetween(trace.stages(above->second), trace.stages(i)));
  }
  return offsets;
}

std::string ToChromeTrace(const v1::TraceReply& trace) {
  return Writer(trace).Write();
}

}  // namespace longhaul
