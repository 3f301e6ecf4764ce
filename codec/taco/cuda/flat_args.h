// Makes the arguments of taco's kernels.
#pragma once

#include "codec/codec.h"
#include "codec/taco/arithmetic.h"
#include "codec/taco/cuda/kernels.h"
#include "codec/taco/format.h"

namespace longhaul::codec::cuda {

// Leaves nonfinite_dev null, so that blocks with a NaN or an infinity are not counted.
inline TacoFlatArgs MakeTacoFlat(const taco::Params& params, void* elements_dev, Dtype dtype,
                                 uint64_t elements, void* payload_dev) {
  const taco::Layout layout = taco::MakeLayout(elements, params);
  TacoFlatArgs args{};
  args.elements_dev = elements_dev;
  args.dtype = static_cast<uint32_t>(dtype);
  args.format = static_cast<uint32_t>(params.format);
  args.block = params.block;
  args.elements = elements;
  args.blocks = layout.blocks;
  args.codes = layout.codes;
  args.largest = taco::LargestNumber(params.format);
  args.unit = taco::UnitOf(params.format, params.block);
  args.payload_dev = static_cast<unsigned char*>(payload_dev);
  return args;
}

}  // namespace longhaul::codec::cuda
