#include "deploy/sweep/results.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace longhaul::cli {
namespace {

using nlohmann::json;

constexpr PointState kStates[] = {PointState::kWaiting, PointState::kMeasured,
                                  PointState::kRunFailed, PointState::kImpossible};

// What is not finite is null.
json Number(double value) {
  return std::isfinite(value) ? json(value) : json(nullptr);
}
template <class T>
json OrNull(const std::optional<T>& value) {
  if (!value) return nullptr;
  if constexpr (std::is_floating_point_v<T>) return Number(*value);
  return *value;
}
template <class T>
std::optional<T> Optional(const json& value) {
  if (value.is_null()) return std::nullopt;
  return value.get<T>();
}

json StageToJson(const StageResult& stage) {
  return {{"replica", stage.id.replica},
          {"stage", stage.id.stage},
          {"worker", stage.worker},
          {"first_layer", stage.first_layer},
          {"layers", stage.layers},
          {"depth", stage.depth},
          {"compute_share", stage.compute_share},
          {"optimizer_share", stage.optimizer_share},
          {"wait_input_share", stage.wait_input_share},
          {"wait_gradient_share", stage.wait_gradient_share},
          {"codec_wait_share", stage.codec_wait_share},
          {"codec_share", stage.codec_share}};
}

StageResult StageFromJson(const json& from) {
  return {.id = {.replica = from.value("replica", 0u), .stage = from.value("stage", 0u)},
          .worker = from.at("worker"),
          .first_layer = from.at("first_layer"),
          .layers = from.at("layers"),
          .depth = from.at("depth"),
          .compute_share = from.at("compute_share"),
          .optimizer_share = from.at("optimizer_share"),
          .wait_input_share = from.at("wait_input_share"),
          .wait_gradient_share = from.at("wait_gradient_share"),
          .codec_wait_share = from.at("codec_wait_share"),
          .codec_share = from.at("codec_share")};
}

json LinkToJson(const LinkBytes& link) {
  return {{"worker", link.worker},
          {"up", OrNull(link.up)},
          {"down", OrNull(link.down)},
          {"up_acknowledgements", OrNull(link.up_acknowledgements)},
          {"down_acknowledgements", OrNull(link.down_acknowledgements)},
          {"dropped_packets", link.dropped_packets}};
}

LinkBytes LinkFromJson(const json& from) {
  return {.worker = from.at("worker"),
          .up = Optional<uint64_t>(from.at("up")),
          .down = Optional<uint64_t>(from.at("down")),
          .up_acknowledgements = Optional<uint64_t>(from.at("up_acknowledgements")),
          .down_acknowledgements = Optional<uint64_t>(from.at("down_acknowledgements")),
          .dropped_packets = from.at("dropped_packets")};
}

json StepToJson(const StepResult& step) {
  return {{"step", step.step},
          {"seconds", step.seconds},
          {"loss", OrNull(step.loss)},
          {"validation_loss", OrNull(step.validation_loss)},
          {"clean_validation_loss", OrNull(step.clean_validation_loss)}};
}

StepResult StepFromJson(const json& from) {
  const auto clean = from.find("clean_validation_loss");  // older versions did not measure it
  return {.step = from.at("step"),
          .seconds = from.at("seconds"),
          .loss = Optional<double>(from.at("loss")),
          .validation_loss = Optional<double>(from.at("validation_loss")),
          .clean_validation_loss = clean == from.end() ? std::nullopt : Optional<double>(*clean)};
}

json PointToJson(const PointResult& point) {
  json to = {{"id", point.id},
             {"rate_bits_per_second", point.rate_bits_per_second},
             {"delay_seconds", point.delay_seconds},
             {"jitter_seconds", point.jitter_seconds},
             {"loss_share", point.loss_share},
             {"links", point.links},
             {"forward", point.forward},
             {"backward", point.backward},
             {"schedule", point.schedule},
             {"variant", point.variant},
             {"repeat", point.repeat},
             {"state", ToString(point.state)},
             {"reason", point.reason},
             {"run_id", point.run_id}};
  if (point.state != PointState::kMeasured) return to;
  to.update({{"replayed", point.replayed},
             {"replay_source", point.replay_source},
             {"started_unix_ms", point.started_unix_ms},
             {"ended_unix_ms", point.ended_unix_ms},
             {"steps", point.steps},
             {"warm_up", point.warm_up},
             {"tokens_per_step", point.tokens_per_step},
             {"tokens_per_second", point.TokensPerSecond()},
             {"step_seconds", point.step_seconds},
             {"step_seconds_low", point.step_seconds_low},
             {"step_seconds_high", point.step_seconds_high},
             {"simulated_seconds", point.simulated_seconds},
             {"bound_seconds", point.bound_seconds},
             {"floor_seconds", point.floor_seconds},
             {"bottleneck", point.bottleneck},
             {"plan_simulated_seconds", point.plan_simulated_seconds},
             {"plan_bound_seconds", point.plan_bound_seconds},
             {"explanation", point.explanation},
             {"link_bytes_per_step", point.link_bytes_per_step},
             {"payload_bytes_per_step", point.payload_bytes_per_step}});
  for (const char* list : {"stages", "link_bytes", "curve"}) to[list] = json::array();
  for (const StageResult& stage : point.stages) to["stages"].push_back(StageToJson(stage));
  for (const LinkBytes& link : point.link_bytes) to["link_bytes"].push_back(LinkToJson(link));
  for (const StepResult& step : point.curve) to["curve"].push_back(StepToJson(step));
  return to;
}

PointState StateOf(const std::string& text) {
  for (const PointState state : kStates) {
    if (text == ToString(state)) return state;
  }
  throw std::invalid_argument(fmt::format("unknown state '{}' of a point", text));
}

PointResult PointFromJson(const json& from) {
  PointResult point;
  from.at("id").get_to(point.id);
  from.at("rate_bits_per_second").get_to(point.rate_bits_per_second);
  from.at("delay_seconds").get_to(point.delay_seconds);
  from.at("jitter_seconds").get_to(point.jitter_seconds);
  from.at("loss_share").get_to(point.loss_share);
  from.at("links").get_to(point.links);
  from.at("forward").get_to(point.forward);
  from.at("backward").get_to(point.backward);
  from.at("schedule").get_to(point.schedule);
  from.at("variant").get_to(point.variant);
  from.at("repeat").get_to(point.repeat);
  point.state = StateOf(from.at("state"));
  from.at("reason").get_to(point.reason);
  from.at("run_id").get_to(point.run_id);
  if (point.state != PointState::kMeasured) return point;
  from.at("replayed").get_to(point.replayed);
  from.at("replay_source").get_to(point.replay_source);
  from.at("started_unix_ms").get_to(point.started_unix_ms);
  from.at("ended_unix_ms").get_to(point.ended_unix_ms);
  from.at("steps").get_to(point.steps);
  from.at("warm_up").get_to(point.warm_up);
  from.at("tokens_per_step").get_to(point.tokens_per_step);
  from.at("step_seconds").get_to(point.step_seconds);
  from.at("step_seconds_low").get_to(point.step_seconds_low);
  from.at("step_seconds_high").get_to(point.step_seconds_high);
  from.at("simulated_seconds").get_to(point.simulated_seconds);
  from.at("bound_seconds").get_to(point.bound_seconds);
  point.floor_seconds = from.value("floor_seconds", 0.0);
  from.at("bottleneck").get_to(point.bottleneck);
  from.at("plan_simulated_seconds").get_to(point.plan_simulated_seconds);
  from.at("plan_bound_seconds").get_to(point.plan_bound_seconds);
  from.at("explanation").get_to(point.explanation);
  from.at("link_bytes_per_step").get_to(point.link_bytes_per_step);
  from.at("payload_bytes_per_step").get_to(point.payload_bytes_per_step);
  uint32_t place = 0;  // by which results of an older version number their stages
  for (const json& stage : from.at("stages")) {
    point.stages.push_back(StageFromJson(stage));
    if (!stage.contains("stage")) point.stages.back().id.stage = place;
    ++place;
  }
  for (const json& link : from.at("link_bytes")) point.link_bytes.push_back(LinkFromJson(link));
  for (const json& step : from.at("curve")) point.curve.push_back(StepFromJson(step));
  return point;
}

std::string CsvCell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string cell = "\"";
  for (const char c : text) {
    if (c == '"') cell.push_back('"');
    cell.push_back(c);
  }
  return cell + '"';
}

// All digits that matter; empty where there is nothing to say.
std::string CsvNumber(double value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : "";
}

std::optional<uint64_t> Sum(const PointResult& point, std::optional<uint64_t> LinkBytes::*member) {
  uint64_t sum = 0;
  for (const LinkBytes& link : point.link_bytes) {
    if (!(link.*member)) return std::nullopt;
    sum += *(link.*member);
  }
  return point.link_bytes.empty() ? std::nullopt : std::optional(sum);
}

std::optional<double> LastLoss(const PointResult& point,
                               std::optional<double> StepResult::*member) {
  for (auto step = point.curve.rbegin(); step != point.curve.rend(); ++step) {
    if (const std::optional<double>& loss = (*step).*member) return loss;
  }
  return std::nullopt;
}

std::vector<std::string> MeasuredCells(const PointResult& point) {
  const auto whole = [](const std::optional<uint64_t>& value) {
    return value ? fmt::format("{}", *value) : "";
  };
  const auto real = [](const std::optional<double>& value) {
    return value ? CsvNumber(*value) : "";
  };
  return {point.replayed ? "yes" : "no",
          fmt::format("{}", point.steps),
          fmt::format("{}", point.warm_up),
          fmt::format("{}", point.tokens_per_step),
          CsvNumber(point.TokensPerSecond()),
          CsvNumber(point.step_seconds),
          CsvNumber(point.step_seconds_low),
          CsvNumber(point.step_seconds_high),
          CsvNumber(point.simulated_seconds),
          CsvNumber(point.bound_seconds),
          CsvNumber(point.floor_seconds),
          CsvNumber(point.plan_simulated_seconds),
          CsvNumber(point.plan_bound_seconds),
          point.bottleneck,
          CsvNumber(point.link_bytes_per_step),
          CsvNumber(point.payload_bytes_per_step),
          whole(Sum(point, &LinkBytes::up)),
          whole(Sum(point, &LinkBytes::down)),
          real(LastLoss(point, &StepResult::loss)),
          real(LastLoss(point, &StepResult::validation_loss)),
          real(LastLoss(point, &StepResult::clean_validation_loss))};
}

constexpr std::string_view kCsvHeading =
    "point,rate_bits_per_second,delay_seconds,jitter_seconds,loss_share,links,forward,backward,"
    "schedule,variant,repeat,state,reason,run_id,replayed,steps,warm_up,tokens_per_step,"
    "tokens_per_second,step_seconds,step_seconds_low,step_seconds_high,simulated_seconds,"
    "bound_seconds,floor_seconds,plan_simulated_seconds,plan_bound_seconds,bottleneck,link_bytes_"
    "per_step,"
    "payload_bytes_per_step,uplink_bytes,downlink_bytes,last_loss,last_validation_loss,"
    "last_clean_validation_loss";

}  // namespace

std::string_view ToString(PointState state) {
  switch (state) {
    case PointState::kWaiting:
      return "waiting";
    case PointState::kMeasured:
      return "done";
    case PointState::kRunFailed:
      return "failed";
    case PointState::kImpossible:
      return "impossible";
  }
  return "";
}

size_t SweepResults::Count(PointState state) const {
  return static_cast<size_t>(
      std::ranges::count(points, state, [](const PointResult& point) { return point.state; }));
}

std::string ToJson(const SweepResults& results) {
  json identity = json::array();
  for (const auto& [what, text] : results.identity) {
    identity.push_back({{"what", what}, {"text", text}});
  }
  const MachineInfo& machine = results.machine;
  json points = json::array();
  for (const PointResult& point : results.points) points.push_back(PointToJson(point));
  const json document = {{"format", kResultsFormat},
                         {"title", results.title},
                         {"version", results.version},
                         {"partial", results.Count(PointState::kWaiting) > 0},
                         {"machine",
                          {{"cpu", machine.cpu},
                           {"cores", machine.cores},
                           {"memory_bytes", machine.memory_bytes},
                           {"system", machine.system},
                           {"kernel", machine.kernel},
                           {"gpus", machine.gpus}}},
                         {"identity", identity},
                         {"points", points}};
  // Texts of run files and workers may be anything.
  return document.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

StatusOr<SweepResults> ResultsFromJson(std::string_view text) {
  try {
    const json document = json::parse(text);
    const int format = document.at("format");
    if (format != kResultsFormat) {
      return absl::InvalidArgumentError(
          fmt::format("expected format {}, got {}", kResultsFormat, format));
    }
    SweepResults results;
    document.at("title").get_to(results.title);
    document.at("version").get_to(results.version);
    const json& machine = document.at("machine");
    machine.at("cpu").get_to(results.machine.cpu);
    machine.at("cores").get_to(results.machine.cores);
    machine.at("memory_bytes").get_to(results.machine.memory_bytes);
    machine.at("system").get_to(results.machine.system);
    machine.at("kernel").get_to(results.machine.kernel);
    results.machine.gpus = machine.value("gpus", "");
    for (const json& entry : document.at("identity")) {
      results.identity.emplace_back(entry.at("what"), entry.at("text"));
    }
    for (const json& point : document.at("points")) {
      results.points.push_back(PointFromJson(point));
    }
    return results;
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
}

std::string ToCsv(const SweepResults& results) {
  const auto columns = static_cast<size_t>(std::ranges::count(kCsvHeading, ',')) + 1;
  std::string text = std::string(kCsvHeading) + "\r\n";
  for (const PointResult& point : results.points) {
    std::vector<std::string> cells = {point.id,
                                      fmt::format("{}", point.rate_bits_per_second),
                                      CsvNumber(point.delay_seconds),
                                      CsvNumber(point.jitter_seconds),
                                      CsvNumber(point.loss_share),
                                      point.links,
                                      point.forward,
                                      point.backward,
                                      point.schedule,
                                      point.variant,
                                      fmt::format("{}", point.repeat),
                                      std::string(ToString(point.state)),
                                      point.reason,
                                      point.run_id};
    if (point.state == PointState::kMeasured) {
      const std::vector<std::string> measured = MeasuredCells(point);
      cells.insert(cells.end(), measured.begin(), measured.end());
    }
    cells.resize(columns);
    for (std::string& cell : cells) cell = CsvCell(cell);
    text += fmt::format("{}\r\n", fmt::join(cells, ","));
  }
  return text;
}

std::string WhatChanged(const SweepResults& before, const SweepResults& now) {
  constexpr size_t kShort = 80;
  std::vector<std::string> changes;
  const auto find = [](const SweepResults& results, const std::string& what) {
    const auto entry =
        std::ranges::find(results.identity, what, [](const auto& pair) { return pair.first; });
    return entry == results.identity.end() ? std::string() : entry->second;
  };
  const auto compare = [&](const std::string& what) {
    const std::string old_text = find(before, what), new_text = find(now, what);
    if (old_text == new_text) return;
    const auto readable = [](const std::string& text) {
      return text.size() <= kShort && text.find('\n') == std::string::npos;
    };
    changes.push_back(readable(old_text) && readable(new_text)
                          ? fmt::format("{}: '{}' is now '{}'", what, old_text, new_text)
                          : fmt::format("{}: not what it was", what));
  };
  for (const auto& [what, text] : now.identity) compare(what);
  for (const auto& [what, text] : before.identity) {
    if (find(now, what).empty()) compare(what);
  }
  std::ranges::sort(changes);
  changes.erase(std::unique(changes.begin(), changes.end()), changes.end());
  return fmt::format("{}", fmt::join(changes, "; "));
}

}  // namespace longhaul::cli
