// Workers in pipeline order, and the edges (links) between them. Pipeline order is replica by
// replica, and in each replica from the first stage to the last. All `workers` below must be in
// this order, and their number a multiple of spec.replicas.count.
#pragma once

#include <cstdint>
#include <vector>

#include "coordinator/state/ledger/worker.h"
#include "run/file/run_spec.h"
#include "run/plan/chain.h"

namespace longhaul::coordinator {

// Returns the number of stages of each replica.
inline uint32_t StagesWith(const RunSpec& spec, const std::vector<Worker*>& workers) {
  return static_cast<uint32_t>(workers.size()) / spec.replicas.count;
}

// Returns the edges of a plan with these workers. Only ids, kinds and ends of the edges are set.
inline std::vector<Edge> EdgesFor(const RunSpec& spec, const std::vector<Worker*>& workers) {
  return chain::MakeEdges(spec.replicas.count, StagesWith(spec, workers),
                          spec.model.TrainsTiedMatrix());
}

// Returns the worker for a cell, which is one stage of one replica.
inline Worker& WorkerAt(const RunSpec& spec, const std::vector<Worker*>& workers,
                        const CellId& cell) {
  return *workers[chain::PlaceOf(cell, StagesWith(spec, workers))];
}

}  // namespace longhaul::coordinator
