// What tests of the planner ask for: eight layers, 16 microbatches, codec none.
#pragma once

#include <cstdint>
#include <string>

#include "planner/planner.h"

namespace longhaul::coordinator {

// Workers w0, w1, ... alike: 10 + 20 ms a layer, 64 GiB, reachable over both transports; nothing is
// known of their links.
inline PlanRequest Request(uint32_t workers) {
  PlanRequest request;
  request.run = RunId("tiny-1");
  request.epoch = Epoch(3);
  request.spec.name = "tiny";
  request.spec.model.layers = 8;
  request.spec.model.hidden = 256;
  request.spec.model.heads = 8;
  request.spec.model.context = 256;
  request.spec.data.text = {"corpus.txt"};
  request.spec.train.steps = 10;
  request.spec.train.microbatches = 16;
  request.spec.links.codecs = {"none", "none"};
  request.spec.transport = TransportKind::kUcx;
  request.data.vocabulary = 256;
  for (uint32_t i = 0; i < workers; ++i) {
    CandidateWorker worker;
    worker.id = WorkerId("id" + std::to_string(i));
    worker.incarnation = Incarnation("inc" + std::to_string(i));
    worker.name = "w" + std::to_string(i);
    worker.memory_bytes = uint64_t{64} << 30;
    worker.devices = {0};
    worker.endpoints = {{"ucx", {"10.0.0.1:1"}}, {"grpc", {"10.0.0.1:2"}}};
    worker.times.set_block_forward(0.01);
    worker.times.set_block_backward(0.02);
    request.workers.push_back(worker);
  }
  return request;
}

// Takes these for a block that so many ranks share, a quarter of the forward inside collectives
// that send 1,000 bytes.
inline v1::GroupTimes& TimeGroup(uint32_t ranks, double forward, double backward,
                                 CandidateWorker* worker) {
  v1::GroupTimes& group = *worker->times.add_groups();
  group.set_tensor(ranks);
  group.set_forward_collective("host");
  group.set_backward_collective("zip over host");
  v1::GroupPass& block = *group.mutable_block();
  block.set_forward(forward);
  block.set_backward(backward);
  block.set_collective_seconds(forward / 4);
  block.mutable_sent()->set_all_reduce(1000);
  group.mutable_head()->mutable_sent()->set_all_gather(10);
  group.mutable_head()->set_collective_seconds(0);
  return group;
}

// Workers with `devices` on their CPUs of `cores`, for a run whose stages have `ranks` each.
inline PlanRequest Groups(uint32_t workers, uint32_t devices, uint32_t ranks, uint32_t cores = 8) {
  PlanRequest request = Request(workers);
  request.spec.group.tensor = ranks;
  for (CandidateWorker& worker : request.workers) {
    worker.devices.clear();
    for (uint32_t device = 0; device < devices; ++device) worker.devices.push_back(device);
    worker.cores = cores;
    if (ranks > 1) TimeGroup(ranks, 0.006, 0.011, &worker);
  }
  return request;
}

// Sets the rate of every interface, both ways.
inline void SetLines(PlanRequest* request, double bits_per_second) {
  for (CandidateWorker& worker : request->workers) {
    worker.egress_bits_per_second = worker.ingress_bits_per_second = bits_per_second;
  }
}

}  // namespace longhaul::coordinator
