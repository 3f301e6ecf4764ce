// Results of a sweep as tests want them: two rates, two codec pairs, two schedules.
#pragma once

#include <string>

#include "deploy/sweep/results.h"

namespace longhaul::cli {

inline PointResult SampleWaiting(uint64_t rate, const std::string& links,
                                 const std::string& schedule) {
  PointResult point;
  point.id = std::to_string(rate) + "/" + links + "/" + schedule;
  point.rate_bits_per_second = rate;
  point.links = links;
  point.forward = point.backward = links == "fp32" ? "none" : "tah";
  point.schedule = schedule;
  return point;
}

// Losses fall, lower where less is sent; a step takes what a link of that rate makes of it.
inline PointResult SampleMeasured(uint64_t rate, const std::string& links,
                                  const std::string& schedule) {
  PointResult point = SampleWaiting(rate, links, schedule);
  point.state = PointState::kMeasured;
  point.run_id = "tiny-p1-abcdef";
  point.started_unix_ms = 1'700'000'000'000;
  point.ended_unix_ms = 1'700'000'060'000;
  point.steps = 20;
  point.warm_up = 2;
  point.tokens_per_step = 4096;
  const double bytes = (links == "fp32" ? 4.0 : 0.6) * (schedule == "1f1b" ? 1.5 : 1.0);
  point.step_seconds = 0.1 + bytes * 2e6 / static_cast<double>(rate);
  point.step_seconds_low = 0.98 * point.step_seconds;
  point.step_seconds_high = 1.05 * point.step_seconds;
  point.simulated_seconds = 0.97 * point.step_seconds;
  point.bound_seconds = 0.9 * point.step_seconds;
  point.bottleneck = "egress of stage 1";
  point.plan_simulated_seconds = point.plan_bound_seconds = 0.05;
  point.explanation = "4 stages: what sets the bound is the egress of stage 1.";
  point.link_bytes_per_step = bytes * 250'000;
  point.payload_bytes_per_step = bytes * 249'000;
  for (uint32_t i = 0; i < 4; ++i) {
    point.stages.push_back({.worker = "worker" + std::to_string(i + 1),
                            .first_layer = i,
                            .layers = 1,
                            .depth = 8,
                            .compute_share = 0.3,
                            .optimizer_share = 0.05,
                            .wait_input_share = 0.2,
                            .wait_gradient_share = 0.35,
                            .codec_wait_share = 0.02,
                            .codec_share = 0.1});
    point.link_bytes.push_back({.worker = "worker" + std::to_string(i + 1),
                                .up = 1'000'000 + i,
                                .down = 2'000'000 + i,
                                .up_acknowledgements = 10'000,
                                .down_acknowledgements = 20'000,
                                .dropped_packets = i});
  }
  for (uint64_t step = 1; step <= point.steps; ++step) {
    StepResult one{
        .step = step, .seconds = point.step_seconds, .loss = 5.5 / (1 + 0.05 * step) + bytes / 20};
    if (step % 5 == 0) one.validation_loss = *one.loss + 0.1;
    if (step == point.steps) one.clean_validation_loss = *one.loss + 0.05;
    point.curve.push_back(one);
  }
  return point;
}

inline SweepResults Sample() {
  SweepResults results;
  results.title = "A sweep";
  results.version = "0.1.0";
  results.machine = {"Some CPU", 2, uint64_t{8} << 30, "Some Linux 1", "Linux 6.1", "4 x Some GPU"};
  results.identity = {{"rates", "20mbit, 5mbit"}, {"the base run", "name: tiny\nmodel: x\n"}};
  for (const uint64_t rate : {20'000'000, 5'000'000}) {
    for (const char* links : {"fp32", "paper"}) {
      for (const char* schedule : {"link-aware", "1f1b"}) {
        results.points.push_back(SampleMeasured(rate, links, schedule));
      }
    }
  }
  return results;
}

}  // namespace longhaul::cli
