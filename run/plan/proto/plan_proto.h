// Converts assignments and plans to messages and back, for sending and storing them. ToProto and
// FromProto are inverse to each other. FromProto accepts any message; CheckAssignment checks
// whether the result is valid. Pure; thread-safe.
#pragma once

#include "longhaul/v1/plan.pb.h"
#include "run/plan/plan.h"

namespace longhaul {

// CheckpointManifest::format of newly written manifests.
inline constexpr uint32_t kManifestFormat = 3;

v1::CollectiveBytes ToProto(const CollectiveBytes& bytes);
CollectiveBytes FromProto(const v1::CollectiveBytes& bytes);

v1::CellId ToProto(const CellId& id);
CellId FromProto(const v1::CellId& id);

v1::DataEndpoint ToProto(const Endpoint& endpoint);
Endpoint FromProto(const v1::DataEndpoint& endpoint);
std::vector<Endpoint> FromProto(
    const google::protobuf::RepeatedPtrField<v1::DataEndpoint>& endpoints);

v1::DataSet ToProto(const DataSet& data);
DataSet FromProto(const v1::DataSet& data);

v1::Cell ToProto(const Cell& cell);
Cell FromProto(const v1::Cell& cell);

v1::Assignment ToProto(const Assignment& assignment);
Assignment FromProto(const v1::Assignment& assignment);

v1::Plan ToProto(const Plan& plan);
Plan FromProto(const v1::Plan& plan);

}  // namespace longhaul
