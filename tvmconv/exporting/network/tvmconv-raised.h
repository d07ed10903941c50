/* Errors of a network as text. */
#ifndef TVMCONV_RAISED_H
#define TVMCONV_RAISED_H

/* Returns the text of this thread's last error: its kind, a colon, the message. */
const char *tvmconv_raised(void);

#endif
