// Starts the ranks: threads of this process, or processes of this program.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/cuda/table.h"
#include "tests/bench/transport/collective/measure.h"
#include "tests/bench/transport/collective/options.h"

namespace longhaul::collective::bench {

struct Listener {
  // Rank 0's: the native communicator is there ("nccl 2.28.9"), and a job's rows are.
  std::function<void(const std::string& native)> ready;
  std::function<void(const std::vector<Row>&)> rows;
  // At the end, of each switcher: what it took for what.
  std::function<void(const std::string& variant, const std::string& decisions)> decided;
};

// Files that may be NCCL, in the order in which they are tried.
std::vector<std::string> NcclCandidates(const std::string& chosen);

// `table`: null for host memory.
Status RunThreads(const Options& options, const cuda::DeviceTable* table, const Listener& listener);
// Rank 0 is this process; the others run `arguments` (without the program) and then RunChild.
Status RunProcesses(const Options& options, const cuda::DeviceTable* table,
                    const std::vector<std::string>& arguments, const Listener& listener);
// What a process that RunProcesses started was told by its flags --child-rank and --child-page.
Status RunChild(const Options& options, const cuda::DeviceTable* table, uint32_t rank, int page);

}  // namespace longhaul::collective::bench
