#include "deploy/sweep/prepare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/version.h"
#include "codec/registry.h"
#include "deploy/cluster/requirements.h"
#include "deploy/sweep/measure.h"

namespace longhaul::cli {
namespace {

constexpr uint64_t kLargestFile = 1 << 20;

Status CheckCodec(std::string_view codec) {
  return codec::CheckCodec(codec);
}

// A run file's name as the sweep file has it, for this process.
std::string BaseFile(const SweepSpec& sweep, const std::string& sweep_file) {
  const std::filesystem::path base(sweep.base);
  if (base.is_absolute()) return sweep.base;
  return (std::filesystem::path(sweep_file).parent_path() / base).lexically_normal().string();
}

// Reads every data file once, whichever points have it.
Status HashAll(const Terminal& terminal, Interrupt& interrupt, std::vector<SweepJob>& jobs) {
  Submission all;
  std::set<std::string> seen;
  for (const SweepJob& job : jobs) {
    for (size_t i = 0; i < job.submission.paths.size(); ++i) {
      if (!seen.insert(job.submission.paths[i]).second) continue;
      all.paths.push_back(job.submission.paths[i]);
      *all.request.add_data_files() = job.submission.request.data_files(static_cast<int>(i));
    }
  }
  LH_RETURN_IF_ERROR(HashData(terminal, interrupt, all));
  std::map<std::string, v1::DataFile> hashed;
  for (size_t i = 0; i < all.paths.size(); ++i) {
    hashed[all.paths[i]] = all.request.data_files(static_cast<int>(i));
  }
  for (SweepJob& job : jobs) {
    for (size_t i = 0; i < job.submission.paths.size(); ++i) {
      *job.submission.request.mutable_data_files(static_cast<int>(i)) =
          hashed[job.submission.paths[i]];
    }
  }
  return absl::OkStatus();
}

std::string DataIdentity(const std::vector<SweepJob>& jobs) {
  std::set<std::string> hashes;
  for (const SweepJob& job : jobs) {
    for (const v1::DataFile& file : job.submission.request.data_files()) {
      hashes.insert(file.sha256());
    }
  }
  return Sha256Hex(fmt::format("{}", fmt::join(hashes, " ")));
}

std::vector<std::pair<std::string, std::string>> IdentityOf(const PreparedSweep& sweep,
                                                            const RunSpec& base) {
  const SweepSpec& spec = sweep.spec;
  std::vector<std::string> rates, delays, links, schedules, variants;
  for (const uint64_t rate : spec.rates) rates.push_back(RateText(rate));
  for (const absl::Duration delay : spec.delays) delays.push_back(DelayText(delay));
  for (const SweepCodecs& pair : spec.links) {
    links.push_back(
        fmt::format("{}: {} / {}", pair.name, pair.codecs.forward, pair.codecs.backward));
  }
  for (const ScheduleKind kind : spec.schedules) schedules.emplace_back(ToString(kind));
  for (const SweepVariant& variant : spec.variants) {
    variants.push_back(fmt::format("{}: {}", variant.name, fmt::join(variant.set, " ")));
  }
  const auto joined = [](const std::vector<std::string>& texts) {
    return fmt::format("{}", fmt::join(texts, ", "));
  };
  const MachineInfo& machine = sweep.fresh.machine;
  const bool on_cpu = sweep.workers.device == "cpu";
  return {{"rates", joined(rates)},
          {"delays", joined(delays)},
          {"jitter", DelayText(spec.jitter)},
          {"loss", fmt::format("{:g}%", 100 * spec.loss)},
          {"links", joined(links)},
          {"schedules", joined(schedules)},
          {"variants", joined(variants)},
          {"repeats", fmt::format("{}", spec.repeats)},
          {"warm_up", fmt::format("{}", spec.warm_up)},
          {"workers", on_cpu ? fmt::format("{}", sweep.workers.count)
                             : fmt::format("{} on {}", sweep.workers.count, sweep.workers.device)},
          {"the base run", ToYaml(base)},
          {"the data", DataIdentity(sweep.jobs)},
          {"the machine", fmt::format("{}, {} cores{}{}", machine.cpu, machine.cores,
                                      on_cpu ? "" : ", ", on_cpu ? "" : machine.gpus)}};
}

}  // namespace

StatusOr<PreparedSweep> PrepareSweep(const Terminal& terminal, Interrupt& interrupt,
                                     const std::string& file,
                                     const std::vector<std::string>& overrides,
                                     const std::string& device) {
  PreparedSweep sweep;
  LH_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kLargestFile));
  LH_ASSIGN_OR_RETURN(sweep.spec, ParseSweepSpec(text, file, CheckCodec));
  const std::string base_file = BaseFile(sweep.spec, file);
  const StatusOr<std::string> base_text = ReadFile(base_file, kLargestFile);
  LH_RETURN_IF_ERROR(Annotate(base_text.status(), fmt::format("{}: base", file)));
  LH_ASSIGN_OR_RETURN(SweepPlan plan,
                      MakeSweepPlan(sweep.spec, *base_text, base_file, overrides, CheckCodec));
  // Not a property of points: without a cluster there are none.
  LH_RETURN_IF_ERROR(CheckRequirements(ThisMachine()));

  sweep.workers = {.count = plan.workers, .device = device};
  for (SweepPoint& point : plan.points) {
    SweepJob job{.point = std::move(point), .submission = {}};
    if (job.point.impossible.empty()) {
      job.submission.spec = job.point.spec;
      // The text as it is now: a file that changes meanwhile changes no later point.
      job.submission.request.set_run_yaml(*base_text);
      job.submission.request.set_file_name(base_file);
      for (const std::string& one : job.point.overrides) job.submission.request.add_overrides(one);
      job.point.impossible = Message(FindData(job.submission));
    }
    sweep.jobs.push_back(std::move(job));
  }
  LH_RETURN_IF_ERROR(HashAll(terminal, interrupt, sweep.jobs));

  std::vector<std::string> always = sweep.spec.set;
  always.insert(always.end(), overrides.begin(), overrides.end());
  LH_ASSIGN_OR_RETURN(const RunSpec base, ParseRunSpec(*base_text, base_file, always, CheckCodec));
  sweep.fresh.title = sweep.spec.title.empty() ? base.name : sweep.spec.title;
  sweep.fresh.version = Version();
  sweep.fresh.machine = ThisMachineInfo();
  sweep.fresh.identity = IdentityOf(sweep, base);
  for (const SweepJob& job : sweep.jobs) {
    sweep.fresh.points.push_back(Unmeasured(job.point, sweep.spec));
  }
  return sweep;
}

}  // namespace longhaul::cli
