#include "coordinator/state/queries/link_stall.h"

#include <gtest/gtest.h>

#include <string>

namespace longhaul::coordinator {
namespace {

// A second in which a stage sends to its neighbour below and does what the test says.
class LinkStall : public ::testing::Test {
 protected:
  LinkStall() {
    report_.set_seconds(1);
    use_.set_link_bytes_sent(1'000'000);
  }
  std::string Stall() const {
    const std::vector<DirectionInUse> directions = {Direction()};
    return std::string(
        StallOf(Direction(), UseOfInterfaces(2, directions, egress_rates_, ingress_rates_)));
  }
  DirectionInUse Direction() const {
    return {.from = 0, .to = 1, .sender = &report_, .use = &use_};
  }

  v1::StepReport report_;
  v1::LinkUse use_;
  std::vector<double> egress_rates_ = {10e6, 10e6}, ingress_rates_ = {10e6, 10e6};
};

TEST_F(LinkStall, WhoSendsMostOfTheTimeWaitsForTheBusierInterface) {
  use_.set_send_busy_seconds(0.6);
  report_.set_forward_seconds(0.9);
  EXPECT_EQ(Stall(), "egress");  // alike
  ingress_rates_[1] = 9e6;
  EXPECT_EQ(Stall(), "ingress");
  egress_rates_[0] = 8e6;
  EXPECT_EQ(Stall(), "egress");
  egress_rates_.clear();  // unknown
  EXPECT_EQ(Stall(), "ingress");
  ingress_rates_.clear();
  EXPECT_EQ(Stall(), "egress");
}

TEST_F(LinkStall, WhoSendsLittleWaitsForItsStage) {
  use_.set_send_busy_seconds(0.3);
  report_.set_forward_seconds(0.2);
  report_.set_backward_seconds(0.2);
  report_.set_optimizer_seconds(0.1);
  report_.set_codec_wait_seconds(0.2);
  report_.set_wait_input_seconds(0.2);
  report_.set_wait_gradient_seconds(0.1);
  EXPECT_EQ(Stall(), "compute");
  report_.set_codec_wait_seconds(0.6);
  EXPECT_EQ(Stall(), "codec");
  report_.set_wait_gradient_seconds(0.5);
  EXPECT_EQ(Stall(), "input");
}

TEST_F(LinkStall, CreditsAreNamedWhereNothingTakesLonger) {
  use_.set_send_busy_seconds(0.9);
  use_.set_credit_wait_seconds(0.5);
  EXPECT_EQ(Stall(), "credits");
  use_.set_credit_wait_seconds(0.4);  // and sends for as much as 0.5
  EXPECT_EQ(Stall(), "egress");
  use_.set_send_busy_seconds(0.4);  // and has nothing for 0.6
  report_.set_forward_seconds(0.6);
  EXPECT_EQ(Stall(), "compute");
}

TEST_F(LinkStall, NothingIsSaidOfAStepWithoutTime) {
  report_.set_seconds(0);
  EXPECT_EQ(Stall(), "");
}

TEST_F(LinkStall, AnInterfaceCarriesAllDirectionsOfItsStage) {
  v1::StepReport middle = report_;
  v1::LinkUse up;
  up.set_link_bytes_sent(500'000);
  middle.set_seconds(2);
  const std::vector<DirectionInUse> directions = {
      Direction(),
      {.from = 1, .to = 2, .sender = &middle, .use = &use_},
      {.from = 1, .to = 0, .sender = &middle, .use = &up}};
  const std::vector<double> egress_rates = {16e6, 16e6};
  const std::vector<double> ingress_rates = {0, 10e6, 8e6};
  const auto interfaces = UseOfInterfaces(3, directions, egress_rates, ingress_rates);
  ASSERT_EQ(interfaces.size(), 3u);
  EXPECT_EQ(interfaces[0], (InterfaceUse{.egress = 0.5, .ingress = std::nullopt}));
  EXPECT_EQ(interfaces[1], (InterfaceUse{.egress = 0.375, .ingress = 0.8}));
  EXPECT_EQ(interfaces[2], (InterfaceUse{.egress = std::nullopt, .ingress = 0.5}));
}

}  // namespace
}  // namespace longhaul::coordinator
