// An unfinished plan: for a run, or for a request that only shows the plan. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "coordinator/state/books/probe_rounds.h"
#include "coordinator/state/ids.h"
#include "coordinator/state/planning/link_survey.h"
#include "longhaul/v1/control.pb.h"
#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

struct Draft {
  struct Candidate {
    WorkerId id;
    Incarnation incarnation;
    std::optional<v1::LayerTimes> times;
  };
  RunId run;  // or the id in a request to plan
  Epoch epoch;
  RunSpec spec;
  std::vector<v1::DataFile> files;
  uint64_t resume_step = 0;        // of the checkpoint to resume from; 0: from scratch
  std::vector<Candidate> workers;  // in pipeline order, unless candidates_for is set
  // Set: the workers are sorted by name, and the plan takes this many of them in an order that it
  // chooses.
  std::optional<uint32_t> candidates_for;
  std::optional<DataSet> data;
  MonoTime began;
  MonoTime measure_until;  // time limit for all layer times
  // Everything else is ready, and workers try to reach each other; the wait is limited.
  bool awaits_reach = false;
  MonoTime reach_until;
  // Only for a request to plan: the user's assumptions about the network, instead of measurements.
  std::optional<uint64_t> assumed_line_bits_per_second;
  std::optional<absl::Duration> assumed_delay;
  // For measuring links, after that. Probes that are not answered in time are given up.
  std::string link_secret;
  ProbeRounds probes;
  // Only if the plan chooses among candidates: the links to measure next, and the time after which
  // no further round of measurements begins.
  LinkSurvey survey;
  std::optional<MonoTime> survey_until;
  // Finally the plan is computed; a finished plan waits for shards on their way to its workers.
  std::optional<ComputationId> computation;
  std::optional<Plan> plan;

  Candidate* Find(const WorkerId& id, const Incarnation& incarnation) {
    for (Candidate& candidate : workers) {
      if (candidate.id == id && candidate.incarnation == incarnation) return &candidate;
    }
    return nullptr;
  }
  // Whether the links between its workers are measured, not assumed or omitted.
  bool MeasuresLinks() const {
    const bool all_assumed = assumed_line_bits_per_second && assumed_delay;
    return spec.links.measure && !all_assumed;
  }
};

}  // namespace longhaul::coordinator
