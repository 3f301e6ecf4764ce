#include "transport/collective/switcher/start.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "transport/collective/switcher/cache.h"
#include "transport/collective/switcher/probe.h"

namespace longhaul::collective::switcher {
namespace {

// What NCCL's choices depend on.
std::string NcclEnvironment() {
  std::set<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::string_view(*entry).starts_with("NCCL_")) variables.insert(*entry);
  }
  return fmt::format("{}", fmt::join(variables, "; "));
}

// What all ranks must have alike.
std::string Likeness(std::span<const std::shared_ptr<Communicator>> communicators,
                     std::span<const std::string> names, const Options& options) {
  std::string text = fmt::format("{} ranks", communicators[0]->size());
  for (size_t k = 0; k < names.size(); ++k) {
    text += fmt::format("\n{}: {}", names[k], communicators[k]->Describe());
  }
  text += "\ndtypes:";
  for (const Dtype dtype : options.dtypes) text += fmt::format(" {}", ToString(dtype));
  return text;
}

// Where all of it is alike, times are.
StatusOr<std::string> KeyOf(Member* member, const std::string& likeness, const cuda::Device* device,
                            Deadline deadline) {
  const std::string own = device == nullptr ? "host memory" : device->info().name;
  LH_ASSIGN_OR_RETURN(const std::vector<std::string> words,
                      member->Tell(own + "\n" + likeness, deadline));
  std::string places;
  for (size_t rank = 0; rank < words.size(); ++rank) {
    const size_t end = words[rank].find('\n');
    if (end == std::string::npos || words[rank].substr(end + 1) != likeness) {
      return InvalidArgument(
          "rank {} makes another switcher than rank {}: expected the same communicators and "
          "options on all",
          rank, member->place().rank);
    }
    places += fmt::format("{}{}", rank == 0 ? "" : ", ", words[rank].substr(0, end));
  }
  return fmt::format("format {}\n{}\n{}\n{}", kCacheFormat, likeness, places, NcclEnvironment());
}

bool Covers(const std::vector<Probe>& probes, const Options& options) {
  const auto has = [&](Op op, Dtype dtype) {
    return std::count_if(probes.begin(), probes.end(), [&](const Probe& probe) {
             return probe.op == op && probe.dtype == dtype;
           }) == 1;
  };
  for (const Dtype dtype : options.dtypes) {
    for (const Op op : kOperations) {
      if (!has(op, dtype)) return false;
    }
  }
  return probes.size() == options.dtypes.size() * kOperations.size();
}

// Rank 0's file, if it is good; what is wrong with one is said in the log.
std::string ReadKept(const std::string& path, std::string_view key, size_t communicators,
                     const Options& options) {
  const StatusOr<std::string> text = ReadFile(path, kMaxTellBytes);
  if (!text.ok()) {
    if (::access(path.c_str(), F_OK) == 0) {
      LogWarning("collectives are probed anew: {}", Message(text.status()));
    }
    return "";
  }
  const StatusOr<std::vector<Probe>> probes = ParseCache(*text, key, communicators);
  if (probes.ok() && Covers(*probes, options)) return *text;
  LogWarning("collectives are probed anew: {}: {}", path,
             probes.ok() ? "expected all operations" : Message(probes.status()));
  return "";
}

void Keep(const std::string& path, const std::string& folder, const std::string& text) {
  Status kept = MakeDirectories(folder);
  if (kept.ok()) kept = WriteFileAtomic(path, text);
  if (!kept.ok()) LogWarning("the probe of collectives is not kept: {}", Message(kept));
}

}  // namespace

StatusOr<Known> Learn(Member* member, std::span<const std::shared_ptr<Communicator>> communicators,
                      std::span<const std::string> names, const cuda::Device* device,
                      const Options& options, Deadline deadline) {
  LH_ASSIGN_OR_RETURN(const std::string key,
                      KeyOf(member, Likeness(communicators, names, options), device, deadline));
  const bool first = member->place().rank == 0;
  const std::string path = options.cache_folder.empty() ? "" : CachePath(options.cache_folder, key);
  std::string kept;
  if (first && !path.empty() && !options.reprobe) {
    kept = ReadKept(path, key, communicators.size(), options);
  }
  // Rank 0's environment is a part of its key: the others take its file, whatever theirs is.
  LH_ASSIGN_OR_RETURN(const std::vector<std::string> words,
                      member->Tell(first ? key + '\0' + kept : "", deadline));
  const size_t end = words[0].find('\0');
  if (end == std::string::npos) {
    return absl::InternalError("expected rank 0's word on kept probes");
  }
  if (end + 1 < words[0].size()) {
    LH_ASSIGN_OR_RETURN(std::vector<Probe> probes,
                        ParseCache(std::string_view(words[0]).substr(end + 1),
                                   words[0].substr(0, end), communicators.size()));
    return Known{std::move(probes), first ? "read from " + path : "read by rank 0"};
  }
  const MonoTime began = Now();
  LH_ASSIGN_OR_RETURN(std::vector<Probe> probes,
                      RunProbe(member, communicators, device, options, deadline));
  if (first && !path.empty()) Keep(path, options.cache_folder, FormatCache(key, probes));
  return Known{std::move(probes), "probed in " + longhaul::FormatDuration(Now() - began)};
}

}  // namespace longhaul::collective::switcher
