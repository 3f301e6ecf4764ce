#include "deploy/sweep/prepare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/device_name.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/version.h"
#include "cli/submission.h"
#include "deploy/cluster/requirements.h"
#include "deploy/sweep/prediction.h"

namespace longhaul::cli {
namespace {

using nlohmann::json;

constexpr uint64_t kLargestFile = 1 << 20;

// A run file's name as the sweep file has it, for this process.
std::string BaseFile(const SweepSpec& sweep, const std::string& sweep_file) {
  const std::filesystem::path base(sweep.base);
  if (base.is_absolute()) return sweep.base;
  return (std::filesystem::path(sweep_file).parent_path() / base).lexically_normal().string();
}

// Reads every data file once, whichever points have it. A hash of their hashes.
StatusOr<std::string> CheckData(const Terminal& terminal, Interrupt& interrupt,
                                const std::string& base_file, std::vector<SweepPoint>& points) {
  Submission all;
  for (SweepPoint& point : points) {
    if (!point.impossible.empty()) continue;
    Submission one;
    one.spec = point.spec;
    one.request.set_file_name(base_file);
    point.impossible = Message(FindData(one));
    for (size_t i = 0; i < one.paths.size(); ++i) {
      if (std::ranges::find(all.paths, one.paths[i]) != all.paths.end()) continue;
      all.paths.push_back(one.paths[i]);
      *all.request.add_data_files() = one.request.data_files(static_cast<int>(i));
    }
  }
  LH_RETURN_IF_ERROR(HashData(terminal, interrupt, all));
  std::set<std::string> hashes;
  for (const v1::DataFile& file : all.request.data_files()) hashes.insert(file.sha256());
  return Sha256Hex(fmt::format("{}", fmt::join(hashes, " ")));
}

std::vector<std::pair<std::string, std::string>> IdentityOf(const PreparedSweep& sweep,
                                                            const std::string& device,
                                                            const std::string& data) {
  const SweepSpec& spec = sweep.spec;
  const auto joined = [](const auto& values, const auto& text_of) {
    std::vector<std::string> texts;
    for (const auto& value : values) texts.emplace_back(text_of(value));
    return fmt::format("{}", fmt::join(texts, ", "));
  };
  const auto pair_text = [](const SweepCodecs& pair) {
    return fmt::format("{}: {} / {}", pair.name, ToString(pair.codecs.forward),
                       ToString(pair.codecs.backward));
  };
  const auto variant_text = [](const SweepVariant& variant) {
    return fmt::format("{}: {}", variant.name, fmt::join(variant.set, " "));
  };
  return {{"rates", joined(spec.rates, RateText)},
          {"delays", joined(spec.delays, DelayText)},
          {"jitter", DelayText(spec.jitter)},
          {"loss", fmt::format("{:g}%", 100 * spec.loss)},
          {"links", joined(spec.links, pair_text)},
          {"schedules", joined(spec.schedules, [](ScheduleKind kind) { return ToString(kind); })},
          {"variants", joined(spec.variants, variant_text)},
          {"repeats", fmt::format("{}", spec.repeats)},
          {"warm_up", fmt::format("{}", spec.warm_up)},
          {"workers", device == "cpu" ? fmt::format("{}", sweep.plan.workers)
                                      : fmt::format("{} on {}", sweep.plan.workers, device)},
          {"the base run", ToYaml(sweep.plan.base)},
          {"the data", data}};
}

json PointJson(const SweepPoint& point, const SweepSpec& sweep) {
  const bool possible = point.impossible.empty();
  const absl::Duration jitter =
      point.delay > absl::ZeroDuration() ? sweep.jitter : absl::ZeroDuration();
  return {{"index", point.index},
          {"id", point.id},
          {"description", Describe(point, sweep)},
          {"rate_bits_per_second", point.rate_bits_per_second},
          {"delay_seconds", absl::ToDoubleSeconds(point.delay)},
          {"jitter_seconds", absl::ToDoubleSeconds(jitter)},
          {"loss_share", sweep.loss},
          {"rate", RateText(point.rate_bits_per_second)},
          {"delay", DelayText(point.delay)},
          {"jitter", DelayText(jitter)},
          {"loss", fmt::format("{:.9g}%", 100 * sweep.loss)},
          {"links", point.links.name},
          {"forward", ToString(point.links.codecs.forward)},
          {"backward", ToString(point.links.codecs.backward)},
          {"schedule", ToString(point.schedule)},
          {"variant", point.variant},
          {"repeat", point.repeat},
          {"overrides", point.overrides},
          {"impossible", point.impossible},
          {"tokens_per_step", possible ? point.spec.TokensPerStep() : 0},
          {"network_seconds", possible ? NetworkSeconds(point.spec, point.rate_bits_per_second) *
                                             static_cast<double>(point.spec.train.steps)
                                       : 0}};
}

}  // namespace

StatusOr<PreparedSweep> PrepareSweep(const Terminal& terminal, Interrupt& interrupt,
                                     const std::string& file,
                                     const std::vector<std::string>& overrides,
                                     const std::string& device, bool may_shape) {
  PreparedSweep sweep;
  LH_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kLargestFile));
  LH_ASSIGN_OR_RETURN(sweep.spec, ParseSweepSpec(text, file));
  if (sweep.spec.shaped && !may_shape) {
    return InvalidArgument(
        "{}: rates: losses do not depend on them, and nothing shapes links here; leave rates, "
        "delays, jitter and loss out, or take `longhaul sweep`",
        file);
  }
  if (!sweep.spec.base_text.empty()) {
    sweep.base_file = file;
    sweep.base_text = sweep.spec.base_text;
  } else {
    sweep.base_file = BaseFile(sweep.spec, file);
    StatusOr<std::string> base_text = ReadFile(sweep.base_file, kLargestFile);
    LH_RETURN_IF_ERROR(Annotate(base_text.status(), fmt::format("{}: base", file)));
    sweep.base_text = *std::move(base_text);
  }
  LH_ASSIGN_OR_RETURN(sweep.plan,
                      MakeSweepPlan(sweep.spec, sweep.base_text, sweep.base_file, overrides));
  LH_ASSIGN_OR_RETURN(sweep.devices, ShareDevices(device, sweep.plan.workers));
  // Not a property of points: without a cluster there are none.
  if (sweep.spec.shaped) LH_RETURN_IF_ERROR(CheckRequirements(ThisMachine()));
  LH_ASSIGN_OR_RETURN(const std::string data,
                      CheckData(terminal, interrupt, sweep.base_file, sweep.plan.points));
  sweep.title = sweep.spec.title.empty() ? sweep.plan.base.name : sweep.spec.title;
  sweep.identity = IdentityOf(sweep, device, data);
  return sweep;
}

std::string ToJson(const PreparedSweep& sweep) {
  json points = json::array(), identity = json::array();
  for (const SweepPoint& point : sweep.plan.points) points.push_back(PointJson(point, sweep.spec));
  for (const auto& [what, text] : sweep.identity) {
    identity.push_back({{"what", what}, {"text", text}});
  }
  const json document = {{"title", sweep.title},
                         {"version", Version()},
                         {"base_file", sweep.base_file},
                         {"base_text", sweep.base_text},
                         {"base_within", !sweep.spec.base_text.empty()},
                         {"shaped", sweep.spec.shaped},
                         {"workers", sweep.plan.workers},
                         {"devices", sweep.devices},
                         {"warm_up", sweep.spec.warm_up},
                         {"identity", std::move(identity)},
                         {"points", std::move(points)}};
  // Texts of run files may be anything.
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace longhaul::cli
