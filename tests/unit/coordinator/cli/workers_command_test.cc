// `longhaul workers`.
#include <nlohmann/json.hpp>

#include "tests/unit/coordinator/cli/cli_test.h"

namespace longhaul::cli {
namespace {

using ::testing::HasSubstr;

TEST_F(CliTest, Workers) {
  EXPECT_THAT(Ask({"workers"}, true).out, HasSubstr("longhaul-worker --coordinator 127.0.0.1:"));
  v1::WorkerStatus worker;
  worker.set_name("worker1");
  worker.set_connected(true);
  worker.add_data_addresses("10.77.0.11:4000");
  v1::Device* device = worker.add_devices();
  device->set_kind("cpu");
  device->set_cores(4);
  device->set_memory_bytes(8'000'000'000);
  worker.set_memory_used_bytes(500'000'000);
  worker.set_version("0.1.0");
  worker.set_last_heartbeat_seconds(0.5);
  control_.workers = {worker};
  EXPECT_THAT(Ask({"workers"}).out,
              HasSubstr("\nworker1\tfree\t-\t-\t10.77.0.11:4000\tcpu x4\t500 MB of 8 GB\t-\t0.1.0\t"
                        "500 ms ago\n"));
  EXPECT_EQ(nlohmann::json::parse(Ask({"workers", "--json"}).out)["workers"][0]["name"], "worker1");
}

}  // namespace
}  // namespace longhaul::cli
