// Makes requests for plans from files, for tests and benchmarks of placement: the choice of a
// worker for each stage. The candidate workers come from a CSV file of links between workers
// (tests/fixtures/placement/make_regions.py writes such files) or from a run file's topology.
//
// Errors end the process: a file that cannot be read, and a run file that is not valid. The other
// contents of files are not checked.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "planner/planner.h"
#include "run/file/run_spec.h"

namespace longhaul::coordinator {

// Returns the contents of a file.
inline std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  LH_CHECK(file.good(), "cannot read {}", path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns a candidate for a replay, a run that sleeps for given times instead of computing;
// spec.replay must be set. spec.replay has the times of a device of speed 1. `speed` divides the
// times of layers, but not those of codecs.
inline CandidateWorker CandidateOf(const RunSpec& spec, const std::string& name, double speed) {
  const ReplaySpec& replay = *spec.replay;
  CandidateWorker worker;
  worker.id = WorkerId(name);
  worker.incarnation = Incarnation("1");
  worker.name = name;
  worker.memory_bytes = replay.memory_bytes;
  worker.devices = {0};
  worker.endpoints = {{"ucx", {"10.0.0.1:1"}}, {"grpc", {"10.0.0.1:2"}}};
  v1::LayerTimes& times = worker.times;
  times.set_embedding_forward(absl::ToDoubleSeconds(replay.embedding_forward) / speed);
  times.set_embedding_backward(absl::ToDoubleSeconds(replay.embedding_backward) / speed);
  times.set_block_forward(absl::ToDoubleSeconds(replay.block_forward) / speed);
  times.set_block_backward(absl::ToDoubleSeconds(replay.block_backward) / speed);
  times.set_head_forward(absl::ToDoubleSeconds(replay.head_forward) / speed);
  times.set_head_backward(absl::ToDoubleSeconds(replay.head_backward) / speed);
  if (const auto* codec = replay.TimesOf(spec.links.codecs.forward)) {
    times.set_forward_encode(absl::ToDoubleSeconds(codec->encode));
    times.set_forward_decode(absl::ToDoubleSeconds(codec->decode));
  }
  if (const auto* codec = replay.TimesOf(spec.links.codecs.backward)) {
    times.set_backward_encode(absl::ToDoubleSeconds(codec->encode));
    times.set_backward_decode(absl::ToDoubleSeconds(codec->decode));
  }
  return worker;
}

// Returns a request for a plan with `stages` stages, still without workers. `run_file`: a path.
inline PlanRequest RequestOf(const std::string& run_file, uint32_t stages) {
  PlanRequest request;
  request.run = RunId("placed-1");
  request.epoch = Epoch(1);
  StatusOr<RunSpec> spec =
      ParseRunSpec(TextOf(run_file), run_file, {fmt::format("pipeline.stages={}", stages)});
  LH_CHECK(spec.ok(), "{}", Message(spec.status()));
  request.spec = *std::move(spec);
  request.data.vocabulary = 257;
  request.candidates_for = stages;
  return request;
}

// Returns a request with one stage for each worker of the run file's topology. Workers are sorted
// by name: "w2" before "w10". The run file must have a topology and a replay.
inline PlanRequest TopologyRequest(const std::string& run_file) {
  PlanRequest request = RequestOf(run_file, 1);
  std::vector<std::string> names;
  for (const TopologyRegion& region : request.spec.topology->regions) {
    names.insert(names.end(), region.workers.begin(), region.workers.end());
  }
  std::ranges::sort(names, {},
                    [](const std::string& name) { return std::pair(name.size(), name); });
  request.candidates_for = static_cast<uint32_t>(names.size());
  request.spec.pipeline.stages = request.candidates_for;
  for (const std::string& name : names) {
    request.workers.push_back(CandidateOf(request.spec, name, /*speed=*/1));
  }
  return request;
}

// Returns a request with the workers and links of a CSV file, and with the model and the replay of
// a run file. `matrix`: path of the CSV file. Lines with another first field are ignored:
//   worker,NAME,REGION,SPEED,MEMORY_GIB,INTERFACE_MBIT_PER_SECOND
//   pair,FROM,TO,ROUND_TRIP_MS,MBIT_PER_SECOND
inline PlanRequest MatrixRequest(const std::string& matrix, const std::string& run_file,
                                 uint32_t stages) {
  PlanRequest request = RequestOf(run_file, stages);
  request.spec.topology.reset();
  std::istringstream lines(TextOf(matrix));
  std::map<std::string, size_t> places;
  const auto number = [](const std::string& text) { return std::strtod(text.c_str(), nullptr); };
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> fields;
    std::istringstream row(line);
    for (std::string field; std::getline(row, field, ',');) fields.push_back(field);
    if (fields[0] == "worker") {
      places[fields[1]] = request.workers.size();
      CandidateWorker worker = CandidateOf(request.spec, fields[1], number(fields[3]));
      worker.memory_bytes = static_cast<uint64_t>(number(fields[4])) << 30;
      worker.egress_bits_per_second = worker.ingress_bits_per_second = number(fields[5]) * 1e6;
      request.workers.push_back(std::move(worker));
    } else if (fields[0] == "pair") {
      request.workers[places.at(fields[1])].to[WorkerId(fields[2])] = {
          .bits_per_second = number(fields[4]) * 1e6,
          .latency = absl::Milliseconds(number(fields[3]) / 2)};
    }
  }
  return request;
}

}  // namespace longhaul::coordinator
