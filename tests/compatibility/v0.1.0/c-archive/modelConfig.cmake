# model::model: the archive, with its header. Found by: find_package(model CONFIG REQUIRED PATHS this/folder)
if(TARGET model::model)
  return()
endif()
add_library(model::model STATIC IMPORTED)
set_target_properties(model::model PROPERTIES
  IMPORTED_LOCATION "${CMAKE_CURRENT_LIST_DIR}/libmodel.a"
  INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}"
  INTERFACE_LINK_LIBRARIES "")
