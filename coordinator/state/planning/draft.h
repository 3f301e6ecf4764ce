// A draft is an unfinished plan: for a run, or for a `longhaul plan` request, which only shows the
// plan. Plain data.
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
    std::optional<v1::LayerTimes> times;  // nullopt: not measured yet
  };
  RunId run;  // id of the run, or of the request to plan
  Epoch epoch;
  RunSpec spec;
  std::vector<v1::DataFile> files;
  uint64_t resume_step = 0;        // step of the checkpoint to resume from; 0: from scratch
  std::vector<Candidate> workers;  // in pipeline order, unless candidates_for is set
  // Set: the workers are candidates, sorted by name. The plan takes this many of them, in an order
  // that it chooses.
  std::optional<uint32_t> candidates_for;
  std::optional<DataSet> data;  // nullopt: not prepared yet
  MonoTime began;
  MonoTime measure_until;  // time limit for all layer times
  // True: data and layer times are there, and the draft waits for workers that try to reach each
  // other, until `reach_until` at the latest.
  bool awaits_reach = false;
  MonoTime reach_until;
  // Only for a request to plan: the user's assumptions about the network, instead of measurements.
  std::optional<uint64_t> assumed_line_bits_per_second;
  std::optional<absl::Duration> assumed_delay;
  // The measurements of links, which come next. Probes without an answer in time are given up. The
  // secrets of the measured links are derived from `link_secret`.
  std::string link_secret;
  ProbeRounds probes;
  // Only with candidates_for: chooses the links to measure next. After `survey_until` no further
  // round of measurements begins.
  LinkSurvey survey;
  std::optional<MonoTime> survey_until;
  // The computation of the plan, which comes last. A finished plan waits until its workers have the
  // shards that are sent to them.
  std::optional<ComputationId> computation;
  std::optional<Plan> plan;

  Candidate* Find(const WorkerId& id, const Incarnation& incarnation) {
    for (Candidate& candidate : workers) {
      if (candidate.id == id && candidate.incarnation == incarnation) return &candidate;
    }
    return nullptr;
  }
  // Returns whether links between the workers are measured. False: the user gave assumptions for
  // both rates and delays, or the run file forbids measurements.
  bool MeasuresLinks() const {
    const bool all_assumed = assumed_line_bits_per_second && assumed_delay;
    return spec.links.measure && !all_assumed;
  }
};

}  // namespace longhaul::coordinator
