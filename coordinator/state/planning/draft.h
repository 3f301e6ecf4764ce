// A plan in the making: for a run, or for a request that only wants to see it. Plain data.
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
  RunId run;  // or the id that a request to plan brought
  Epoch epoch;
  RunSpec spec;
  std::vector<v1::DataFile> files;
  uint64_t resume_step = 0;        // of the checkpoint that it goes on from; 0: from scratch
  std::vector<Candidate> workers;  // in pipeline order, unless candidates_for is set
  // Set: the workers are by name, and the plan takes this many of them in an order of its own.
  std::optional<uint32_t> candidates_for;
  std::optional<DataSet> data;
  MonoTime began;
  MonoTime measure_until;  // all layer times must be in by then
  // All else is there, and workers of it are trying to reach each other; not waited for any longer.
  bool awaits_reach = false;
  MonoTime reach_until;
  // Only for a request to plan: what the user assumes of the network instead of what was measured.
  std::optional<uint64_t> assumed_line_bits_per_second;
  std::optional<absl::Duration> assumed_delay;
  // Then the links are measured. Probes that are not answered in time are given up.
  std::string link_secret;
  ProbeRounds probes;
  // Only where the plan chooses among candidates: which links are measured next, and when no
  // further round of those that are measured now begins.
  LinkSurvey survey;
  std::optional<MonoTime> survey_until;
  // Last its plan is computed; a plan that is there waits for shards on their way to its workers.
  std::optional<ComputationId> computation;
  std::optional<Plan> plan;

  Candidate* Find(const WorkerId& id, const Incarnation& incarnation) {
    for (Candidate& candidate : workers) {
      if (candidate.id == id && candidate.incarnation == incarnation) return &candidate;
    }
    return nullptr;
  }
  // The links between its workers are measured, rather than assumed or not asked for.
  bool MeasuresLinks() const {
    const bool all_assumed = assumed_line_bits_per_second && assumed_delay;
    return spec.links.measure && !all_assumed;
  }
};

}  // namespace longhaul::coordinator
