# tvmconv_add_library(NAME MODEL SOURCE... [TARGETS TARGET...] [SHARED] [THREADS none|pthreads|openmp]
#                     [BUILD_OPTIONS OPTION...])
#
# Builds the convolutions of SOURCE... (what `tvmconv build` takes; absolute paths of generated files) for TARGETS (default: host)
# with the project, as the target NAME: an imported library with the header NAME.h. It is rebuilt when a file of SOURCE... changes.
#
#   SHARED         NAME is the shared library
#   THREADS        the library's own threads
#   BUILD_OPTIONS  other options of `tvmconv build`: --shape x=1x3x320x320
find_program(TVMCONV_EXECUTABLE tvmconv HINTS "${CMAKE_CURRENT_LIST_DIR}/../../../../../../bin" DOC "The command tvmconv")
if(NOT TVMCONV_EXECUTABLE)
  message(FATAL_ERROR "there is no command tvmconv: put its folder on the PATH, or set TVMCONV_EXECUTABLE")
endif()

function(tvmconv_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 given "SHARED" "THREADS" "MODEL;TARGETS;BUILD_OPTIONS")
  if(given_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tvmconv_add_library(${name}): unknown arguments: ${given_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT given_MODEL)
    message(FATAL_ERROR "tvmconv_add_library(${name}): MODEL is missing; give what tvmconv build takes, such as a file of ONNX")
  endif()
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/${name}-tvmconv")
  set(library "${folder}/lib${name}.a")
  set(build ${given_BUILD_OPTIONS})
  set(export "")
  set(outputs "${folder}/${name}.h" "${folder}/lib${name}.a")
  foreach(target IN LISTS given_TARGETS)
    list(APPEND build --target "${target}")
  endforeach()
  if(given_THREADS)
    list(APPEND export --threads "${given_THREADS}")
  endif()
  if(given_SHARED)
    list(APPEND export --shared)
    set(library "${folder}/lib${name}.so")
    list(APPEND outputs "${library}")
  endif()
  set(sources "")
  set(files "")
  foreach(source IN LISTS given_MODEL)
    get_filename_component(path "${source}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
    get_source_file_property(generated "${path}" GENERATED)
    if(generated OR EXISTS "${path}")
      list(APPEND files "${path}")
      list(APPEND sources "${path}")
    else() # a signature
      list(APPEND sources "${source}")
    endif()
  endforeach()
  set(bundle "${CMAKE_CURRENT_BINARY_DIR}/${name}.bundle")
  add_custom_command(
    OUTPUT ${outputs}
    COMMAND "${CMAKE_COMMAND}" -E remove_directory "${bundle}"
    COMMAND "${TVMCONV_EXECUTABLE}" build ${sources} ${build} --output "${bundle}"
    COMMAND "${TVMCONV_EXECUTABLE}" export-c "${bundle}" --output "${folder}" --name "${name}" ${export}
    DEPENDS ${files}
    COMMENT "Building the convolutions of ${name}"
    VERBATIM)
  add_custom_target("${name}-tvmconv" DEPENDS ${outputs})
  file(MAKE_DIRECTORY "${folder}") # an include directory of an imported target must exist
  if(given_SHARED)
    add_library("${name}" SHARED IMPORTED GLOBAL)
    set_target_properties("${name}" PROPERTIES IMPORTED_SONAME "lib${name}.so")
  else()
    add_library("${name}" STATIC IMPORTED GLOBAL)
    if(given_THREADS STREQUAL "pthreads")
      find_package(Threads REQUIRED)
      set_target_properties("${name}" PROPERTIES INTERFACE_LINK_LIBRARIES Threads::Threads)
    elseif(given_THREADS STREQUAL "openmp")
      set_target_properties("${name}" PROPERTIES INTERFACE_LINK_LIBRARIES gomp)
    endif()
  endif()
  set_target_properties("${name}" PROPERTIES
    IMPORTED_LOCATION "${library}" INTERFACE_INCLUDE_DIRECTORIES "${folder}")
  add_dependencies("${name}" "${name}-tvmconv")
endfunction()
