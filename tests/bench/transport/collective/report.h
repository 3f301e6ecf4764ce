// What was measured, as a table, CSV and JSON. Pure, but for DescribeMachine.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/cuda/table.h"
#include "tests/bench/transport/collective/measure.h"

namespace longhaul::collective::bench {

// GPUs, the links among them as nvidia-smi shows them, NCCL_* of the environment. `table`: null for
// host memory.
StatusOr<nlohmann::ordered_json> DescribeMachine(const Options& options,
                                                 const cuda::DeviceTable* table);

std::string TableHead(const Options& options, const std::string& native);
std::string TableLine(const Row& row);
std::string Csv(const Options& options, const std::vector<Row>& rows);
nlohmann::ordered_json ToJson(const Options& options, const std::vector<Row>& rows,
                              const nlohmann::ordered_json& machine, const std::string& native,
                              const nlohmann::ordered_json& switchers);

}  // namespace longhaul::collective::bench
