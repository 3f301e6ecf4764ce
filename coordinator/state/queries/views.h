// Answers queries about runs and workers between ticks, for users and for other parts of the
// coordinator. `now` is on the clock of State::Tick's `now`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "coordinator/state/ledger/fault_counts.h"
#include "coordinator/state/queries/rights.h"
#include "longhaul/v1/control.pb.h"

namespace longhaul::coordinator {

class Health;
class Ledger;
class LinkTroubles;
class Planning;
class Requests;
class Shards;
class Spares;
class Steps;
class WorkerLinks;
struct Draft;
struct InterfaceUse;
struct Run;

class Views {
 public:
  struct Sources {
    const Ledger& ledger;
    const Health& health;
    const WorkerLinks& links;
    const Spares& spares;
    const LinkTroubles& troubles;
    const Steps& steps;
    const Shards& shards;
    const Planning& planning;
    const Requests& requests;
  };
  explicit Views(const Sources& of) : of_(of) {}

  // Returns the runs without their plans, newest first. A run that is not wanted costs little time.
  struct Wanted {
    int64_t ended_since_unix_ms = 0;  // leaves out runs that ended before; 0: none
    std::optional<std::string_view> owner = std::nullopt;  // only runs of this owner
    std::optional<uint32_t> most_ended = std::nullopt;     // so many that have ended; nullopt: all
    bool links_of_ended = false;  // also the links of runs that have ended; they take most time
  };
  struct RunList {
    std::vector<v1::RunStatus> runs;
    size_t ended_left_out = 0;  // by most_ended
  };
  RunList ListRuns(const Wanted& wanted) const;
  std::vector<v1::RunStatus> Runs() const { return ListRuns({}).runs; }
  // Returns the run with this id, else the newest run of this name, with its plan. `owner`: if set,
  // only runs of this owner count. kNotFound: there is no such run.
  StatusOr<v1::RunStatus> RunOf(std::string_view id_or_name,
                                std::optional<std::string_view> owner = std::nullopt) const;
  // Returns what would submit the run that RunOf returns: its run file with every key, and its data
  // files. The rest is empty. Errors as RunOf.
  StatusOr<v1::SubmitRequest> SubmissionOf(
      std::string_view id_or_name, std::optional<std::string_view> owner = std::nullopt) const;
  std::vector<v1::WorkerStatus> Workers(MonoTime now) const;
  // Returns the newest measurements of the links between connected workers.
  std::vector<v1::MeasuredLink> Links(MonoTime now) const;
  // Returns the relays that are available now.
  std::vector<v1::RelayStatus> Relays() const;

  // Returns whether a worker was asked to send this shard (checkpoint file) to the coordinator, and
  // has not finished. `from`: if set, only requests to this worker count.
  bool ExpectsCopy(const std::string& sha256, uint64_t bytes,
                   const std::optional<WorkerId>& from = std::nullopt) const;
  // Returns whether a worker was asked to write, or with `writes` false to fetch, this object of an
  // object store for the run, and has not finished. `from`: as in ExpectsCopy.
  bool MovesObject(const RunId& run, const std::string& address, bool writes,
                   const std::optional<WorkerId>& from) const;
  // Returns whether a shard with this hash has arrived at the coordinator, for a check under way in
  // which worker `from` must send the shard.
  bool HasCopyFor(const WorkerId& from, const std::string& sha256) const;
  // The functions of rights.h.
  Naming NamedForWorker(const WorkerId& worker, const std::string& sha256) const;
  Naming NamedForOwner(std::string_view owner, const std::string& sha256) const;
  StatusOr<WorkersRun> RunOfWorker(const std::optional<WorkerId>& worker,
                                   const std::string& run) const;
  OwnNames NamesOfOwner(std::string_view owner) const;

  // Whether a call of this id was answered, or is under way (once.h).
  bool KnowsCall(std::string_view owner, std::string_view id) const;
  // Returns how many workers are connected.
  size_t Connected() const;

  const FaultCounts& faults() const;
  // Grows with every change that users may see.
  uint64_t sequence() const;

 private:
  v1::RunStatus Render(const Run& run, bool with_links) const;
  void RenderDraft(const Draft& draft, v1::RunStatus* status) const;
  void RenderStages(const Run& run, const std::vector<InterfaceUse>& interfaces,
                    v1::RunStatus* status) const;
  void RenderLinks(const Run& run, const std::vector<InterfaceUse>& interfaces,
                   v1::RunStatus* status) const;

  const Sources of_;
};

}  // namespace longhaul::coordinator
