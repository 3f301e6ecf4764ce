#include "codec/zip/format.h"

#include "codec/tile.h"

namespace longhaul::codec::zip {

Layout MakeLayout(uint64_t elements) {
  Layout layout;
  layout.groups = (elements + kGroup - 1) / kGroup;
  layout.lows = AlignSection(4 * (layout.groups + 1));
  layout.signs = layout.lows + AlignSection(layout.groups);
  layout.codes = layout.signs + AlignSection(elements);
  layout.plane_bytes = AlignSection((elements + 7) / 8);
  layout.escapes = layout.codes + kPlanes * layout.plane_bytes;
  layout.raw = 2 * elements;
  layout.may_be_smaller = layout.escapes < layout.raw;
  // Whole sections below what is left.
  if (layout.may_be_smaller) {
    layout.most_escapes = (layout.raw - layout.escapes - 1) / 16 * 16;
  }
  return layout;
}

uint64_t PayloadBytes(const Layout& layout, uint64_t escapes) {
  if (!layout.may_be_smaller || escapes > layout.most_escapes) return layout.raw;
  return layout.escapes + AlignSection(escapes);
}

}  // namespace longhaul::codec::zip
