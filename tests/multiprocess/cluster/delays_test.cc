// Delay, jitter and loss, per worker, pair and region, while the links carry traffic; and the relay
// that makes them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "base/file.h"
#include "deploy/cluster/process.h"
#include "deploy/cluster/shaping.h"
#include "tests/multiprocess/cluster/harness.h"

namespace longhaul::testing {
namespace {

using ::testing::HasSubstr;

class Delays : public ClusterTest {
 protected:
  // Small packets from one worker to another and back.
  nlohmann::json Ping(int from, int to, int seconds = 1) {
    Running echo(Traffic(to, "echo", Address(to), seconds + 60));
    EXPECT_TRUE(echo.WaitForOutput("listening")) << echo.output();
    Running ping(Traffic(from, "ping", Address(to), seconds));
    EXPECT_EQ(ping.Wait(), 0) << ping.output();
    return nlohmann::json::parse(ping.output(), nullptr, false);
  }
  // No packet is early; on a busy machine the quickest of many is not much late.
  void ExpectRoundTrip(int from, int to, double seconds) {
    const auto seen = Ping(from, to);
    ASSERT_GT(seen["answers"], 0) << seen;
    EXPECT_GE(seen["least"], seconds) << "from worker" << from << " to worker" << to;
    EXPECT_LE(seen["least"], seconds + 0.05) << "from worker" << from << " to worker" << to;
  }
  std::string Write(const std::string& text) {
    std::string path = files_.path() + "/topology.yaml";
    EXPECT_TRUE(WriteFileAtomic(path, text).ok());
    return path;
  }
  TempDir files_;
};

TEST_F(Delays, TheWorseEndsDelayCountsEachWayAndChanges) {
  EXPECT_THAT(Expect(0, Up({"--workers", "3", "--rate", "20mbit", "--delay", "25ms"})),
              HasSubstr("links of 20 Mbit/s each way, 25 ms one way"));
  EXPECT_EQ(Worker(1)["delay_seconds"], 0.025);
  ExpectRoundTrip(1, 2, 0.050);
  Expect(0, Command({"link", "worker2", "--delay", "100ms"}));
  ExpectRoundTrip(1, 2, 0.200);
  ExpectRoundTrip(2, 3, 0.200);
  ExpectRoundTrip(1, 3, 0.050);
  // A delay in one direction only.
  Expect(0, Command({"link", "worker2", "--to", "worker1", "--delay", "10ms"}));
  ExpectRoundTrip(1, 2, 0.110);
  EXPECT_THAT(Expect(0, Command({"status"})), HasSubstr("worker2 to worker1: 10 ms"));
}

TEST_F(Delays, TheRelayComesAndGoesWithTheDelays) {
  Expect(0, Up({"--workers", "2", "--rate", "20mbit"}));
  EXPECT_TRUE(Status()["relay"].is_null());
  ExpectRoundTrip(1, 2, 0);
  Expect(0, Traffic(1, "datagrams", Address(2), 100));
  const auto counted = Worker(1)["uplink"]["data_bytes"].get<uint64_t>();
  EXPECT_EQ(counted, 100 * 1042);

  Expect(0, Command({"link", "all", "--delay", "30ms"}));
  if (Status()["delay_by"] == "netem") GTEST_SKIP() << "this kernel needs no relay";
  const auto relay = Status()["relay"];
  EXPECT_TRUE(relay["alive"] && relay["answers"]) << relay;
  EXPECT_EQ(FindDaemons(name()).size(), 4u);
  ExpectRoundTrip(1, 2, 0.060);
  EXPECT_GT(Status()["relay"]["arrived_packets"], 0);
  // Bytes are counted as before, at both ends.
  const auto before = Worker(2)["downlink"]["data_bytes"].get<uint64_t>();
  Expect(0, Traffic(1, "datagrams", Address(2), 100));
  EXPECT_EQ(Worker(1)["uplink"]["data_bytes"], counted + 100 * 1042);
  EXPECT_EQ(Worker(2)["downlink"]["data_bytes"], before + 100 * 1042);

  // Cut and mended, as on the bridge.
  Expect(0, Command({"link", "worker1", "--down"}));
  EXPECT_EQ(Ping(2, 1)["answers"], 0);
  Expect(0, Command({"link", "worker1", "--up"}));
  EXPECT_GT(Ping(2, 1)["answers"], 0);

  Expect(0, Command({"link", "all", "--delay", "0"}));
  EXPECT_TRUE(Status()["relay"].is_null());
  EXPECT_EQ(FindDaemons(name()).size(), 3u);  // the coordinator and two workers
  ExpectRoundTrip(1, 2, 0);
}

TEST_F(Delays, ADeadRelayIsShownAndStartedAgain) {
  Expect(0, Up({"--workers", "2", "--delay", "30ms", "--delay-by", "relay"}));
  Expect(0, Command({"kill", "relay"}));
  EXPECT_FALSE(Status()["relay"]["alive"]);
  EXPECT_THAT(Expect(0, Command({"status"})), HasSubstr("relay        dead"));
  EXPECT_EQ(Ping(1, 2)["answers"], 0);
  EXPECT_THAT(Expect(1, Command({"link", "all", "--delay", "40ms"})),
              HasSubstr("longhaul cluster start relay"));
  Expect(0, Command({"start", "relay"}));
  ExpectRoundTrip(1, 2, 0.060);
  Expect(0, Command({"kill", "relay"}));
  Expect(0, Command({"down"}));
  ExpectNothingLeft();
}

TEST_F(Delays, LossIsAShareOfThePackets) {
  Expect(0, Up({"--workers", "2"}));
  // Without loss, so that they know each other's address from now on: what has waited for that
  // leaves beside what comes next, on another core, and may be overtaken.
  ExpectRoundTrip(1, 2, 0);
  Expect(0, Command({"link", "all", "--loss", "20%"}));
  constexpr int kPackets = 2000;
  Running count(Traffic(2, "count", Address(2), 60));
  ASSERT_TRUE(count.WaitForOutput("listening"));
  Expect(0, Traffic(1, "numbered", Address(2), kPackets));
  ASSERT_EQ(count.Wait(), 0) << count.output();
  const auto seen = nlohmann::json::parse(count.output().substr(count.output().find('{')));
  // 0.8 of them, within six standard deviations.
  EXPECT_NEAR(seen["came"].get<double>(), 0.8 * kPackets, 108) << seen;
  EXPECT_TRUE(seen["out_of_order"].empty()) << seen;
}

TEST_F(Delays, ALinkOfGsoPacketsLosesSinglePackets) {
  Expect(0, Up({"--workers", "2", "--rate", "50mbit", "--delay", "5ms", "--loss", "1%"}));
  // It gets through, with what was lost sent again.
  const std::string address = Address(1);
  Running one(Traffic(1, "duplex-listen", address, 4));
  Running two(Traffic(2, "duplex-dial", address, 4));
  ASSERT_EQ(one.Wait(), 0) << one.output();
  ASSERT_EQ(two.Wait(), 0) << two.output();
  const auto payload = nlohmann::json::parse(one.output())["bytes"].get<double>();
  EXPECT_GT(payload, 100'000);
  if (Status()["delay_by"] == "netem") GTEST_SKIP() << "there is no relay that counts";
  const auto relay = Status()["relay"];
  EXPECT_GT(relay["lost_packets"], 0);
  // Were they larger than 1500 bytes, fewer would have arrived.
  EXPECT_GE(relay["arrived_packets"].get<double>(), payload / 1460);
}

TEST_F(Delays, JitterWandersAndKeepsTheOrder) {
  Expect(0, Up({"--workers", "2", "--delay", "40ms", "--jitter", "20ms", "--delay-by", "relay"}));
  const auto seen = Ping(1, 2, 4);
  EXPECT_GE(seen["least"], 0.040) << seen;
  EXPECT_GE(seen["most"].get<double>() - seen["least"].get<double>(), 0.010) << seen;
  Running count(Traffic(2, "count", Address(2), 60));
  ASSERT_TRUE(count.WaitForOutput("listening"));
  Expect(0, Traffic(1, "numbered", Address(2), 1000));
  ASSERT_EQ(count.Wait(), 0) << count.output();
  const auto order = nlohmann::json::parse(count.output().substr(count.output().find('{')));
  EXPECT_EQ(order["came"], 1000) << order;
  EXPECT_TRUE(order["out_of_order"].empty()) << order;
}

TEST_F(Delays, WhatOneWorkerSendsToAnotherHasARateOfItsOwn) {
  Expect(0, Up({"--workers", "3", "--rate", "50mbit"}));
  if (Status()["shaper"] != ToString(Shaper::kHtb)) GTEST_SKIP() << "this kernel has tbf alone";
  Expect(0, Command({"link", "worker1", "--to", "worker2", "--rate", "5mbit"}));
  const auto [capped, back] = DuplexTraffic(1, 2, 4);
  EXPECT_GE(capped.goodput, 0.8 * 5e6);
  EXPECT_LE(capped.line_rate, 5e6);
  EXPECT_GE(back.goodput, 10e6);
  EXPECT_GE(DuplexTraffic(1, 3, 4).first.goodput, 10e6);
  // Bytes of the path are bytes of the uplink.
  const auto up = Worker(1)["uplink"];
  EXPECT_EQ(up["bytes"].get<uint64_t>(),
            up["data_bytes"].get<uint64_t>() + up["acknowledgement_bytes"].get<uint64_t>());
  EXPECT_GE(up["data_bytes"].get<double>(), capped.goodput / 8 * 2);
  EXPECT_EQ(Status()["paths"][0]["bits_per_second"], 5'000'000);
}

TEST_F(Delays, AChangeThatFailsHalfwayIsUndone) {
  Expect(0, Up({"--workers", "2", "--rate", "50mbit", "--delay-by", "relay"}));
  if (Status()["shaper"] != ToString(Shaper::kHtb)) GTEST_SKIP() << "this kernel has tbf alone";
  // A relay that cannot be started, when tc has shaped the path already.
  const std::string path = runtime_folder() + "/longhaul/" + name() + "/cluster.json";
  const auto state = ReadFile(path, 1 << 20);
  ASSERT_TRUE(state.ok()) << state.status();
  auto broken = nlohmann::json::parse(*state);
  const auto relay_program = std::exchange(broken["relay_program"], "/bin/false");
  ASSERT_TRUE(WriteFileAtomic(path, broken.dump()).ok());
  const std::vector<std::string> change =
      Command({"link", "worker1", "--to", "worker2", "--rate", "5mbit", "--delay", "50ms"});
  EXPECT_THAT(Expect(1, change), HasSubstr("relay has ended"));
  EXPECT_TRUE(Status()["paths"].empty());
  Expect(0, Traffic(1, "datagrams", Address(2), 100));
  EXPECT_EQ(Worker(1)["uplink"]["data_bytes"], 100 * 1042);
  ExpectRoundTrip(1, 2, 0);

  broken["relay_program"] = relay_program;
  ASSERT_TRUE(WriteFileAtomic(path, broken.dump()).ok());
  Expect(0, change);
  EXPECT_EQ(Status()["paths"][0]["bits_per_second"], 5'000'000);
  ExpectRoundTrip(1, 2, 0.050);
}

TEST_F(Delays, UpAndDownAreApart) {
  Expect(0, Up({"--workers", "2", "--rate", "20mbit", "--up-rate", "5mbit"}));
  EXPECT_EQ(Worker(2)["up_bits_per_second"], 5'000'000);
  EXPECT_EQ(Worker(2)["down_bits_per_second"], 20'000'000);
  Expect(0, Command({"link", "worker2", "--down-rate", "unlimited"}));
  EXPECT_EQ(Worker(2)["up_bits_per_second"], 5'000'000);
  EXPECT_TRUE(Worker(2)["down_bits_per_second"].is_null());
  EXPECT_TRUE(Worker(2)["uplink"].is_object() && Worker(2)["downlink"].is_null());
}

TEST_F(Delays, ATopologyOfRegions) {
  const std::string file = Write(
      "topology:\n"
      "  regions: { eu: [worker1, worker2], us: [worker3] }\n"
      "  links:\n"
      "    - { between: [eu, us], rate: 20mbit, delay: 40ms }\n"
      "    - { within: eu, delay: 5ms }\n");
  Expect(0, Up({"--workers", "3", "--topology", file}));
  ExpectRoundTrip(1, 2, 0.010);
  ExpectRoundTrip(1, 3, 0.080);
  ExpectRoundTrip(3, 2, 0.080);
  EXPECT_EQ(Status()["paths"].size(), 6u);
  Expect(0, Command({"down"}));

  const std::string strange = Write(
      "topology:\n  regions: { eu: [worker1], us: [worker9] }\n"
      "  links: [{ between: [eu, su], delay: 1ms }]\n");
  EXPECT_THAT(Expect(1, Up({"--workers", "2", "--topology", strange})),
              HasSubstr("topology.yaml:3:27: topology.links[1].between: no region 'su'"));
  const std::string unknown = Write(
      "topology:\n  regions: { eu: [worker1], us: [worker9] }\n"
      "  links: [{ between: [eu, us], delay: 1ms }]\n");
  EXPECT_THAT(Expect(1, Up({"--workers", "2", "--topology", unknown})),
              HasSubstr("topology.regions.us: cluster"));
  ExpectNothingLeft();
}

TEST_F(Delays, WrongUsage) {
  EXPECT_THAT(Expect(2, Up({"--delay", "1ms", "--jitter", "2ms"})), HasSubstr("before"));
  EXPECT_THAT(Expect(2, Up({"--delay-by", "magic"})), HasSubstr("netem"));
  Expect(0, Up({"--workers", "2", "--delay", "20ms"}));
  const std::string delay_by = Status()["delay_by"];
  EXPECT_THAT(Expect(1, Command({"link", "worker1", "--jitter", "30ms"})), HasSubstr("jitter"));
  EXPECT_THAT(Expect(1, Command({"link", "worker1", "--to", "worker7", "--delay", "1ms"})),
              HasSubstr("worker1, worker2"));
  EXPECT_THAT(Expect(1, Command({"link", "worker1", "--to", "worker1", "--delay", "1ms"})),
              HasSubstr("nothing to itself"));
  EXPECT_THAT(Expect(2, Command({"link", "worker1", "--to", "worker2", "--up-rate", "1mbit"})),
              HasSubstr("one rate"));
  EXPECT_THAT(Expect(2, Command({"link", "worker1", "--to", "worker2", "--down"})),
              HasSubstr("cannot be cut alone"));
  // What was refused changed nothing.
  EXPECT_EQ(Worker(1)["jitter_seconds"], 0);
  EXPECT_TRUE(Status()["paths"].empty());
  Expect(0, Command({"down"}));
  if (delay_by == "netem") GTEST_SKIP() << "this kernel has netem";
  EXPECT_THAT(Expect(1, Up({"--workers", "1", "--delay-by", "netem"})),
              HasSubstr("modprobe sch_netem"));
  EXPECT_THAT(Expect(1, Command({"start", "relay"})), HasSubstr("no local cluster"));
  ExpectNothingLeft();
}

}  // namespace
}  // namespace longhaul::testing
