// Nothing of a plan is lost on its way through messages, whatever fields these get.
#include "run/plan/proto/plan_proto.h"

#include <gmock/gmock.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <string>

#include "run/plan/chain.h"

namespace longhaul {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::util::MessageDifferencer;

// Gives every field of a message, and of the messages in it, a value of its own that is not the
// field's default. Repeated fields get two.
class Filler {
 public:
  void Fill(Message* message) {
    const auto* descriptor = message->GetDescriptor();
    for (int i = 0; i < descriptor->field_count(); ++i) {
      const FieldDescriptor* field = descriptor->field(i);
      for (int n = 0; n < (field->is_repeated() ? 2 : 1); ++n) Set(message, field);
    }
  }

 private:
  void Set(Message* message, const FieldDescriptor* field) {
    const Reflection& reflection = *message->GetReflection();
    const bool many = field->is_repeated();
    ++number_;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Fill(many ? reflection.AddMessage(message, field)
                         : reflection.MutableMessage(message, field));
      case FieldDescriptor::CPPTYPE_STRING: {
        const std::string text = "text " + std::to_string(number_);
        return many ? reflection.AddString(message, field, text)
                    : reflection.SetString(message, field, text);
      }
      case FieldDescriptor::CPPTYPE_UINT32:
        return many ? reflection.AddUInt32(message, field, number_)
                    : reflection.SetUInt32(message, field, number_);
      case FieldDescriptor::CPPTYPE_UINT64: {
        const uint64_t value = (uint64_t{1} << 40) + number_;
        return many ? reflection.AddUInt64(message, field, value)
                    : reflection.SetUInt64(message, field, value);
      }
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return many ? reflection.AddDouble(message, field, number_ / 8.0)
                    : reflection.SetDouble(message, field, number_ / 8.0);
      case FieldDescriptor::CPPTYPE_BOOL:
        return reflection.SetBool(message, field, true);
      case FieldDescriptor::CPPTYPE_ENUM: {
        const auto* values = field->enum_type();
        const int known = values->value_count() - 1;  // the first one is UNKNOWN
        return reflection.SetEnum(message, field,
                                  values->value(1 + static_cast<int>(number_) % known));
      }
      default:
        ADD_FAILURE() << field->full_name() << " has a type that this test cannot set yet";
    }
  }

  uint32_t number_ = 0;
};

template <class Full>
Full EveryField() {
  Full message;
  Filler().Fill(&message);
  return message;
}

// The differences, or nothing.
template <class One>
std::string LostOnTheWay(const One& message) {
  std::string difference;
  MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&difference);
  differencer.Compare(message, ToProto(FromProto(message)));
  return difference;
}

TEST(PlanProto, KeepsEveryField) {
  const auto plan = EveryField<v1::Plan>();
  ASSERT_EQ(plan.assignment().cells_size(), 2);
  ASSERT_EQ(plan.prediction().codecs_size(), 2);
  ASSERT_NE(plan.assignment().edges(0).backward().latency_seconds(), 0);
  EXPECT_EQ(LostOnTheWay(plan), "");
}

TEST(PlanProto, KeepsEveryFieldOfTheParts) {
  EXPECT_EQ(LostOnTheWay(EveryField<v1::Assignment>()), "");
  EXPECT_EQ(LostOnTheWay(EveryField<v1::Cell>()), "");
  EXPECT_EQ(LostOnTheWay(EveryField<v1::CellId>()), "");
  EXPECT_EQ(LostOnTheWay(EveryField<v1::DataSet>()), "");
  EXPECT_EQ(LostOnTheWay(EveryField<v1::DataEndpoint>()), "");
}

TEST(PlanProto, KeepsEveryKindOfEdge) {
  Assignment assignment;
  for (const EdgeKind kind :
       {EdgeKind::kActivations, EdgeKind::kReplicas, EdgeKind::kTied, EdgeKind::kState}) {
    assignment.edges.push_back({.kind = kind});
  }
  const Assignment back = FromProto(ToProto(assignment));
  ASSERT_EQ(back.edges.size(), assignment.edges.size());
  for (size_t i = 0; i < back.edges.size(); ++i) {
    EXPECT_EQ(back.edges[i].kind, assignment.edges[i].kind);
  }
}

TEST(PlanProto, AnEdgeOfAKindThatIsNotKnownIsNobodysWay) {
  v1::Assignment message = ToProto(Assignment{.edges = chain::MakeEdges(1, 2)});
  message.mutable_edges(0)->set_kind(static_cast<v1::Edge::Kind>(99));
  EXPECT_EQ(FromProto(message).Outgoing({0, 0}, EdgeKind::kActivations), nullptr);
}

TEST(PlanProto, WhatIsNotAssumedIsNotSaid) {
  Plan plan;
  EXPECT_FALSE(ToProto(plan).prediction().has_assumed_delay_seconds());
  EXPECT_FALSE(FromProto(ToProto(plan)).prediction.assumed_line_bits_per_second);
  plan.prediction.assumed_delay_seconds = 0;
  EXPECT_EQ(FromProto(ToProto(plan)).prediction.assumed_delay_seconds, 0.0);
}

}  // namespace
}  // namespace longhaul
