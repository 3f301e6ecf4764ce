// `longhaul workers`.
#include <nlohmann/json.hpp>

#include "tests/unit/cli/cli_test.h"

namespace longhaul::cli {
namespace {

using ::testing::HasSubstr;

TEST_F(CliTest, Workers) {
  EXPECT_THAT(Ask({"workers"}, true).out, HasSubstr("longhaul-worker --coordinator 127.0.0.1:"));
  v1::WorkerStatus worker;
  worker.set_name("worker1");
  worker.set_connected(true);
  for (const auto& [transport, address] :
       {std::pair{"ucx", "10.77.0.11:4000"}, std::pair{"grpc", "192.0.2.7:7100"}}) {
    v1::DataEndpoint& endpoint = *worker.add_endpoints();
    endpoint.set_transport(transport);
    endpoint.add_addresses(address);
  }
  v1::Device* device = worker.add_devices();
  device->set_kind("cpu");
  device->set_cores(4);
  device->set_memory_bytes(8'000'000'000);
  worker.set_memory_used_bytes(500'000'000);
  worker.set_version("0.1.0");
  worker.set_last_heartbeat_seconds(0.5);
  control_.workers = {worker};
  EXPECT_THAT(Ask({"workers"}).out,
              HasSubstr("\nworker1\tfree\t-\t-\tucx 10.77.0.11:4000, grpc "
                        "192.0.2.7:7100\tcpu x4\t500 MB of 8 GB\t-\t-\t0.1.0\t"
                        "500 ms ago\n"));
  control_.workers[0].set_can_talk_to(3);
  EXPECT_THAT(Ask({"workers"}).out, HasSubstr("500 MB of 8 GB\t-\t3\t0.1.0\t"));
  EXPECT_THAT(Ask({"workers"}).out, ::testing::Not(HasSubstr("cannot talk")));
  v1::UnreachableWorker& other = *control_.workers[0].add_cannot_talk_to();
  other.set_worker("worker2");
  other.set_transport("ucx");
  other.set_problem("worker1 does not reach worker2 at 10.0.0.3:4000 (no answer)");
  EXPECT_THAT(Ask({"workers"}).out, HasSubstr("500 MB of 8 GB\t-\tnot worker2 (ucx)\t0.1.0\t"));
  EXPECT_THAT(Ask({"workers"}).out,
              HasSubstr("\nworker1 and worker2 cannot talk over ucx: worker1 does not reach "
                        "worker2 at 10.0.0.3:4000 (no answer)\n"));
  EXPECT_THAT(Ask({"workers"}).out, ::testing::Not(HasSubstr("GOODPUT")));
  EXPECT_THAT(Ask({"workers"}).out, ::testing::Not(HasSubstr("LAYERS OF")));
  EXPECT_THAT(Ask({"workers"}).out, ::testing::Not(HasSubstr("KEEPS A STAGE")));
  v1::Resident& resident = *control_.workers[0].mutable_resident();
  resident.set_run_id("tiny-abc234");
  resident.set_first_layer(4);
  resident.set_layers(2);
  resident.set_memory_bytes(300'000'000);
  EXPECT_THAT(Ask({"workers"}).out, HasSubstr("\nworker1\ttiny-abc234\t2 from 4 on\t300 MB\n"));
  v1::MeasuredLayers& layers = *control_.workers[0].mutable_measured_layers();
  layers.set_model("hidden 256, context 64, microbatches of 2, fp32");
  layers.mutable_times()->set_block_forward(0.004);
  layers.mutable_times()->set_block_backward(0.009);
  layers.mutable_times()->set_threads(2);
  layers.set_age_seconds(5);
  EXPECT_THAT(
      Ask({"workers"}).out,
      HasSubstr("\nworker1\thidden 256, context 64, microbatches of 2, fp32\t2\t4 ms\t9 ms\t5 s "
                "ago\n"));
  v1::MeasuredLink link;
  link.set_from_worker("worker1");
  link.set_to_worker("worker2");
  link.set_transport("ucx");
  link.set_goodput_bits_per_second(9.5e6);
  link.set_round_trip_seconds(0.05);
  link.set_age_seconds(90);
  control_.links = {link};
  EXPECT_THAT(Ask({"workers"}).out,
              HasSubstr("\nworker1\tworker2\tucx\t9.5 Mbit/s\t50 ms\t1m30s ago\n"));
  EXPECT_EQ(nlohmann::json::parse(Ask({"workers", "--json"}).out)["links"][0]["age_seconds"], 90);
  EXPECT_EQ(nlohmann::json::parse(Ask({"workers", "--json"}).out)["workers"][0]["name"], "worker1");
  // The other way only round trips are known.
  link.set_from_worker("worker2");
  link.set_to_worker("worker1");
  link.set_goodput_bits_per_second(0);
  control_.links.push_back(link);
  control_.workers.push_back(worker);
  control_.workers.back().set_name("worker2");
  EXPECT_EQ(Ask({"workers", "--links"}).out,
            "FROM / TO\tworker1\tworker2\n"
            "worker1\t-\t9.5 Mbit/s, 50 ms\n"
            "worker2\t50 ms\t-\n");
}

}  // namespace
}  // namespace longhaul::cli
